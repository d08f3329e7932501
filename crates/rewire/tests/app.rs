//! The example of an app runs, on an adapter where there is one.

#[path = "../examples/app.rs"]
mod app;

#[test]
fn the_app_serves_its_users() {
    app::main().unwrap_or_else(|error| panic!("{error}"));
}
