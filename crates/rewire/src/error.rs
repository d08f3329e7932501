use std::error::Error;

/// Formats an error and its causes on one line. Causes that a message already contains are omitted.
///
/// ```
/// let error = rewire::weights::Weights::read("/nowhere".as_ref()).unwrap_err();
/// assert!(rewire::describe(&error).starts_with("cannot read /nowhere: "));
/// ```
pub fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text.replace(['\n', '\r'], " ")
}
