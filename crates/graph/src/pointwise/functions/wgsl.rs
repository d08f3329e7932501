/// A function as WGSL expressions of `{a}` and `{b}`, which are names, literals or calls.
#[derive(Clone, Copy, Debug)]
pub struct Wgsl {
    /// Of scalars.
    pub scalar: &'static str,
    /// Of four lanes, component by component; `None` where there is no such form.
    pub wide: Option<&'static str>,
}

impl Wgsl {
    /// Text that holds for scalars and vectors.
    pub const fn both(text: &'static str) -> Self {
        Self { scalar: text, wide: Some(text) }
    }

    /// Text that holds for scalars.
    pub const fn scalar(text: &'static str) -> Self {
        Self { scalar: text, wide: None }
    }

    /// Texts for scalars and for vectors.
    pub const fn forms(scalar: &'static str, wide: &'static str) -> Self {
        Self { scalar, wide: Some(wide) }
    }

    /// The expression of four lanes where there is one and it is asked for, else that of scalars.
    pub fn text(&self, wide: bool, a: &str, b: &str) -> String {
        let text = self.wide.filter(|_| wide).unwrap_or(self.scalar);
        text.replace("{a}", a).replace("{b}", b)
    }
}
