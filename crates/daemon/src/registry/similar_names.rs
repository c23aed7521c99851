//! Words that are written almost alike, for "did you mean".

/// Longer words are not compared: nobody mistypes a word of that length by a letter or two.
const LONGEST: usize = 64;

/// The word that is nearest to what was typed, if one is near: one slip of the pen in a short word, two in a longer one.
pub(super) fn nearest(typed: &str, words: impl Iterator<Item = String>) -> Option<String> {
    let length = typed.chars().count();
    let slips = match length {
        0..=2 => return None,
        3..=5 => 1,
        6..=LONGEST => 2,
        _ => return None,
    };
    let near = words.filter(|word| word.chars().count().abs_diff(length) <= slips);
    let measured = near.map(|word| (slips_between(typed, &word), word)).filter(|(count, _)| *count <= slips);
    measured.min().map(|(_, word)| word)
}

/// How many letters are added, left out, replaced or swapped with their neighbour, whatever their case.
fn slips_between(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (one, other) = (letters(one), letters(other));
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for (place, wanted) in other.iter().enumerate() {
            let replaced = row[place] + usize::from(letter != wanted);
            let mut least = replaced.min(row[place + 1] + 1).min(next[place] + 1);
            if at > 0 && place > 0 && one[at - 1] == *wanted && other[place - 1] == *letter {
                least = least.min(before[place - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_another_word_is_not() {
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
