//! The app example runs, on an adapter if there is one.

#[path = "../examples/app.rs"]
mod app;

#[test]
fn the_app_serves_its_users() {
    app::main().unwrap_or_else(|error| panic!("{error}"));
}
