//! Similar words, for "did you mean".

/// Longer words are not compared.
const MAX_LENGTH: usize = 64;

/// The most similar word, if one is within one edit of a short word or two of a longer one.
pub(super) fn nearest(typed: &str, words: impl Iterator<Item = String>) -> Option<String> {
    let length = typed.chars().count();
    let max_edits = match length {
        0..=2 => return None,
        3..=5 => 1,
        6..=MAX_LENGTH => 2,
        _ => return None,
    };
    let near = words.filter(|word| word.chars().count().abs_diff(length) <= max_edits);
    let measured = near.map(|word| (edit_distance(typed, &word), word)).filter(|(count, _)| *count <= max_edits);
    measured.min().map(|(_, word)| word)
}

/// The number of letters added, removed, replaced or swapped with their neighbour, ignoring case.
fn edit_distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (one, other) = (letters(one), letters(other));
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.iter().enumerate() {
        let mut next = vec![line + 1];
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = row[column] + usize::from(letter != other_letter);
            let mut fewest = replaced.min(row[column + 1] + 1).min(next[column] + 1);
            if line > 0 && column > 0 && one[line - 1] == *other_letter && other[column - 1] == *letter {
                fewest = fewest.min(before[column - 1] + 1);
            }
            next.push(fewest);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_recognised_and_another_word_is_not() {
        let words = || ["web", "worker-1", "database", "k3v9x2"].map(str::to_owned).into_iter();
        for (typed, meant) in [
            ("wbe", Some("web")),
            ("Web", Some("web")),
            ("weeb", Some("web")),
            ("worker1", Some("worker-1")),
            ("wroker-l", Some("worker-1")),
            ("databsae", Some("database")),
            ("k3v9x3", Some("k3v9x2")),
            ("we", None),
            ("api", None),
            ("wxbkre-1", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, words()).as_deref(), meant, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(100), std::iter::once("x".repeat(101))), None);
    }
}
