//! Plain tables: columns as wide as what is in them, two spaces between, numbers to the right.

/// A table that is shown once it is complete.
pub struct Table {
    heads: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads; a head that starts with `>` has its column aligned to the right.
    pub fn new(heads: &[&'static str]) -> Self {
        let right = heads.iter().map(|h| h.starts_with('>')).collect();
        Table { heads: heads.iter().map(|h| h.trim_start_matches('>')).collect(), right, rows: Vec::new() }
    }

    /// Add a row. A cell of several lines makes several lines.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines.
    pub fn lines(&self) -> Vec<String> {
        let wide = |s: &str| s.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|i| self.rows.iter().map(|r| wide(&r[i])).chain([wide(self.heads[i])]).max().unwrap_or(0))
            .collect();
        let line = |cells: &[&str]| {
            let mut out = String::new();
            for (i, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[i] - cell.chars().count().min(widths[i]));
                if i > 0 {
                    out.push_str("  ");
                }
                if self.right[i] {
                    out.push_str(&pad);
                }
                out.push_str(cell);
                if !self.right[i] {
                    out.push_str(&pad);
                }
            }
            out.truncate(out.trim_end().len());
            out
        };
        let mut lines = vec![line(&self.heads)];
        for row in &self.rows {
            let mut cells: Vec<_> = row.iter().map(|cell| cell.lines()).collect();
            let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
            for _ in 0..height {
                let now: Vec<&str> = cells.iter_mut().map(|cell| cell.next().unwrap_or("")).collect();
                lines.push(line(&now));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["ID", ">Size", "Paths"]);
        table.row(vec!["abc".into(), "1 B".into(), "/a\n/b".into()]);
        table.row(vec!["d".into(), "1.00 KiB".into(), String::new()]);
        assert_eq!(table.lines(), ["ID       Size  Paths", "abc       1 B  /a", "               /b", "d    1.00 KiB"]);
    }
}
