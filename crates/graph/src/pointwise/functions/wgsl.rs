/// A function as WGSL expressions of `{a}` and `{b}`, which are names, literals or calls.
#[derive(Clone, Copy, Debug)]
pub struct Wgsl {
    /// For scalars.
    pub scalar: &'static str,
    /// For `vec4`, component by component; `None` if there is no such form.
    pub wide: Option<&'static str>,
}

impl Wgsl {
    /// WGSL that is valid for scalars and vectors.
    pub const fn both(text: &'static str) -> Self {
        Self { scalar: text, wide: Some(text) }
    }

    /// WGSL that is valid for scalars only.
    pub const fn scalar(text: &'static str) -> Self {
        Self { scalar: text, wide: None }
    }

    /// WGSL for scalars and for vectors.
    pub const fn forms(scalar: &'static str, wide: &'static str) -> Self {
        Self { scalar, wide: Some(wide) }
    }

    /// The `vec4` expression if requested and available, else the scalar one.
    pub fn text(&self, wide: bool, a: &str, b: &str) -> String {
        let text = self.wide.filter(|_| wide).unwrap_or(self.scalar);
        text.replace("{a}", a).replace("{b}", b)
    }
}
