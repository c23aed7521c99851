//! The version of this program, and which of two versions is older.

use std::cmp::Ordering;

/// The version of this program. A package builder may set PINFOLD_VERSION when it builds, for a version that is not released.
pub(crate) const VERSION: &str = match option_env!("PINFOLD_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Compares two versions as semantic versioning does; `None` if one of them is not `MAJOR.MINOR.PATCH` with an optional
/// `-PRERELEASE` and `+BUILD`.
pub(crate) fn compare(left: &str, right: &str) -> Option<Ordering> {
    let (left, right) = (parse(left)?, parse(right)?);
    Some(left.0.cmp(&right.0).then_with(|| match (left.1, right.1) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(left), Some(right)) => compare_prerelease(left, right),
    }))
}

fn parse(text: &str) -> Option<([u64; 3], Option<&str>)> {
    let text = text.split_once('+').map_or(text, |(version, _)| version);
    let (numbers, prerelease) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some((numbers, prerelease))
}

fn compare_prerelease(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_semantic_versioning_says() {
        let ordered = [
            "0.1.0-alpha",
            "0.1.0-alpha.1",
            "0.1.0-alpha.beta",
            "0.1.0-rc.2",
            "0.1.0-rc.11",
            "0.1.0",
            "0.2.0",
            "0.10.0",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Some(Ordering::Less), "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Some(Ordering::Greater), "{pair:?}");
        }
        assert_eq!(compare("0.1.0+a", "0.1.0+b"), Some(Ordering::Equal));
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.x"] {
            assert_eq!(compare(bad, "0.1.0"), None, "{bad}");
        }
        assert!(parse(VERSION).is_some(), "{VERSION}");
    }
}
