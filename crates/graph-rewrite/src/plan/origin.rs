/// Whether a plan was lowered in this process, so that its kernels are known to stay within their tensors.
///
/// It is not stored with a plan and does not tell plans apart.
///
/// ```
/// use rewire_graph_rewrite::plan::{Origin, Plan};
/// let graph = rewire_graph::Scope::new().finish(&[])?;
/// let plan = rewire_graph_rewrite::lower(&graph)?;
/// assert!(plan.origin.is_lowered() && !Origin::default().is_lowered());
/// let stored: Plan = serde_json::from_str(&serde_json::to_string(&plan)?)?;
/// assert!(stored == plan && !stored.origin.is_lowered());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    lowered: bool,
}

impl Origin {
    pub(crate) const LOWERED: Self = Self { lowered: true };

    /// True for what `lower` returned.
    pub fn is_lowered(self) -> bool {
        self.lowered
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
