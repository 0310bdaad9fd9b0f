//! Plain tables, and numbers as people read them.

/// Which side of its column a cell leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Columns as wide as their widest cell, two blanks apart; without blanks at the end of a line.
pub fn render(header: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let titles = header.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(header) {
            let cell = match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// At most five characters: `999`, `1.2k`, `12.3k`, `123k`, `1.2M`.
pub fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n < 999.5 => return format!("{n:.0}"),
        n if n < 999_500.0 => (n / 1e3, "k"),
        n if n < 999_500_000.0 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    if scaled < 99.95 { format!("{scaled:.1}{unit}") } else { format!("{scaled:.0}{unit}") }
}

/// Whole mebibytes, as memory is configured.
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// `75 s`, `12 min`, `3 h 5 min`, `2 d 3 h`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        s if s < 120 => format!("{s} s"),
        s if s < 3600 => format!("{} min", s / 60),
        s if s < 86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Cut to `width` characters, the last of which says that it was cut; control characters become blanks, since they come
/// from outside and would move the cursor.
pub fn fit(text: &str, width: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    if text.chars().count() <= width {
        return text.chars().map(clean).collect();
    }
    text.chars().take(width.saturating_sub(1)).map(clean).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let header = [("NAME", Align::Left), ("N", Align::Right), ("NOTE", Align::Left)];
        let rows = [
            vec!["a".to_owned(), "1,000".to_owned(), String::new()],
            vec!["größer".to_owned(), "2".to_owned(), "x".to_owned()],
        ];
        assert_eq!(render(&header, &rows), "NAME        N  NOTE\na       1,000\ngrößer      2  x\n");
    }

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let shorts = [0.0, 0.4, 999.4, 999.6, 1234.0, 99_940.0, 99_960.0, 999_499.0, 999_501.0, 2e9];
        assert_eq!(shorts.map(short), ["0", "0", "999", "1.0k", "1.2k", "99.9k", "100k", "999k", "1.0M", "2.0G"]);
        assert_eq!([0, 119, 120, 3700, 90_000].map(duration), ["0 s", "119 s", "2 min", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(mebibytes((84 << 20) + 1), "85 MiB");
    }

    #[test]
    fn text_from_outside_cannot_move_the_cursor() {
        assert_eq!(fit("a\x1b[2Jb\nc", 20), "a [2Jb c");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("abcd", 4), "abcd");
    }
}
