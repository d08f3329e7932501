//! Loads of elements as they are stored, without a conversion to values.

use super::{Module, Source};
use crate::EmitError;
use crate::access::suffix;
use rewire_graph_rewrite::plan::MemorySpace;

impl Module<'_> {
    /// Four neighbouring bytes, the first at a multiple of four, as a word.
    pub fn load_word(&mut self, position: u16, index: &[String]) -> Result<String, EmitError> {
        let (slot, at) = self.group(position, index)?;
        self.reads.entry(slot).or_default().words = true;
        Ok(format!("word_{}({at})", suffix(slot)))
    }

    /// The type of four neighbouring unconverted elements of an operand, and the function that converts them; `None` if
    /// they are values, or in a binding that is divided.
    pub fn stored_four(&self, position: u16) -> Option<(&'static str, String)> {
        let operand = self.operand(position).ok()?;
        let slot = Source::Operand(position);
        let four = self.form(operand.dtype).four().filter(|_| self.has_vector_load(position))?;
        (operand.space == MemorySpace::Device && self.windows_of(slot) == 1)
            .then(|| (four, format!("values_{}", suffix(slot))))
    }

    /// Four neighbouring unconverted elements of an operand, the first at a multiple of four.
    pub fn load_stored(&mut self, position: u16, index: &[String]) -> Result<String, EmitError> {
        let (slot, at) = self.group(position, index)?;
        let operand = self.operand(position)?;
        let at = at + &self.row_argument(slot, operand, None, (index, |row| row));
        self.reads.entry(slot).or_default().stored = true;
        Ok(format!("stored_{}({at})", suffix(slot)))
    }
}
