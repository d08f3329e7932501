/// The coordinates that a piece of WGSL has.
#[derive(Clone, Debug, Default)]
pub(super) struct Coords {
    /// Names of the parameters of a function at these coordinates.
    parameters: Vec<String>,
    /// By axis, what the coordinate is.
    texts: Vec<(u8, String)>,
}

impl Coords {
    /// Names of the first axes.
    pub fn first(names: impl IntoIterator<Item = String>) -> Self {
        (0u8..).zip(names).fold(Self::default(), |coords, (axis, name)| coords.with(axis, &name))
    }

    /// With a parameter, which is the coordinate of an axis, if there is one.
    #[must_use]
    pub fn with(mut self, axis: impl Into<Option<u8>>, name: &str) -> Self {
        self.parameters.push(name.to_owned());
        self.texts.extend(axis.into().map(|axis| (axis, name.to_owned())));
        self
    }

    /// With a coordinate that follows from parameters.
    #[must_use]
    pub fn derived(mut self, axis: u8, text: String) -> Self {
        self.texts.push((axis, text));
        self
    }

    /// What a coordinate is.
    pub fn get(&self, axis: u8) -> Option<&str> {
        self.texts.iter().find(|(of, _)| *of == axis).map(|(_, text)| text.as_str())
    }

    /// Axes and what their coordinates are.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &str)> {
        self.texts.iter().map(|(axis, text)| (*axis, text.as_str()))
    }

    /// The parameters of a function.
    pub fn parameters(&self) -> String {
        self.parameters.iter().map(|name| format!("{name}: i32")).collect::<Vec<_>>().join(", ")
    }
}
