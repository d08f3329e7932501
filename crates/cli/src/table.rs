//! Tables for terminals.

use comfy_table::{CellAlignment, Table, presets::NOTHING};

/// Lines of columns of equal width, a header first. Numbers are right-aligned, the columns `left` left-aligned.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((2, 0));
        column.set_cell_alignment(if left.contains(&at) { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = ["1", "Ä", "10"].map(str::to_owned).to_vec();
        assert_eq!(table(&["#", "title", "n"], [row], &[1]), "  #  title   n\n  1  Ä      10");
    }
}
