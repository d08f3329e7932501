/// The coordinates available in a WGSL function.
#[derive(Clone, Debug, Default)]
pub(super) struct Coords {
    /// Names of the parameters of a function at these coordinates.
    parameters: Vec<String>,
    /// The WGSL of each coordinate, by axis.
    texts: Vec<(u8, String)>,
}

impl Coords {
    /// Coordinates of the first axes, which are parameters with these names.
    pub fn first(names: impl IntoIterator<Item = String>) -> Self {
        (0u8..).zip(names).fold(Self::default(), |coords, (axis, name)| coords.with(axis, &name))
    }

    /// Adds a parameter. It is the coordinate of `axis`, unless that is `None`.
    #[must_use]
    pub fn with(mut self, axis: impl Into<Option<u8>>, name: &str) -> Self {
        self.parameters.push(name.to_owned());
        self.texts.extend(axis.into().map(|axis| (axis, name.to_owned())));
        self
    }

    /// Adds a coordinate computed from parameters.
    #[must_use]
    pub fn derived(mut self, axis: u8, text: String) -> Self {
        self.texts.push((axis, text));
        self
    }

    /// The WGSL of a coordinate.
    pub fn get(&self, axis: u8) -> Option<&str> {
        self.texts.iter().find(|(of, _)| *of == axis).map(|(_, text)| text.as_str())
    }

    /// Axes with the WGSL of their coordinates.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &str)> {
        self.texts.iter().map(|(axis, text)| (*axis, text.as_str()))
    }

    /// The parameters of a function.
    pub fn parameters(&self) -> String {
        self.parameters.iter().map(|name| format!("{name}: i32")).collect::<Vec<_>>().join(", ")
    }
}
