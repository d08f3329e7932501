//! Tests the library in other languages and environments, one part for each.

mod browser;
mod c;
mod datafusion;
mod mobile;
mod python;
pub(crate) mod readme;

/// An environment and its test.
struct Part {
    name: &'static str,
    /// Returns a missing requirement of the test, and how to install it.
    missing: fn() -> Option<String>,
    test: fn() -> Result<(), String>,
}

const PARTS: [Part; 10] = [
    Part { name: "browser", missing: browser::missing, test: browser::test },
    Part { name: "c", missing: c::missing, test: c::test },
    Part { name: "python", missing: python::missing, test: python::test },
    Part { name: "clusters", missing: python::missing_of_clusters, test: python::test_clusters },
    Part { name: "ranks", missing: python::missing, test: python::test_ranks },
    Part { name: "datafusion", missing: || None, test: datafusion::test },
    Part { name: "kotlin", missing: mobile::missing_of_kotlin, test: mobile::test_kotlin },
    Part { name: "swift", missing: || None, test: mobile::test_swift },
    Part { name: "swiftc", missing: mobile::missing_of_swiftc, test: mobile::test_swiftc },
    Part { name: "phones", missing: mobile::missing_of_phones, test: mobile::test_phones },
];

/// The parts to test.
pub(crate) struct Options(Vec<&'static Part>);

impl Options {
    /// Parses the names of parts. Without names, all parts are tested.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let known = || PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
        let find = |name: &&str| {
            let part = PARTS.iter().find(|part| part.name == *name);
            part.ok_or_else(|| format!("there is no part `{name}`: expected {}", known()))
        };
        let all = if arguments.is_empty() { Ok(PARTS.iter().collect()) } else { arguments.iter().map(find).collect() };
        all.map(Self)
    }
}

/// Tests all parts, even if one fails, and reports the parts that were skipped.
pub(crate) fn run(Options(parts): &Options) -> Result<(), String> {
    let mut failed = vec![];
    let mut said = vec![];
    for part in parts {
        let outcome = match (part.missing)() {
            Some(missing) => format!("left out: {missing}"),
            None => match (part.test)() {
                Ok(()) => "passes".to_owned(),
                Err(reason) => {
                    failed.push(part.name);
                    format!("fails: {reason}")
                }
            },
        };
        said.push(format!("{}: {outcome}", part.name));
    }
    eprintln!("\n{}", said.join("\n"));
    if failed.is_empty() { Ok(()) } else { Err(format!("tests fail: {}", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name() {
        let names = |arguments: &[&str]| Ok(Options::parse(arguments)?.0.iter().map(|part| part.name).collect());
        assert_eq!(names(&["browser"]), Ok::<Vec<&str>, String>(vec!["browser"]));
        assert_eq!(names(&[]).map(|all: Vec<_>| all.len()), Ok(PARTS.len()));
        assert!(names(&["toaster"]).unwrap_err().contains("there is no part `toaster`"));
    }
}
