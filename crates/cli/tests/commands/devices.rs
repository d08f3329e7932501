//! Listing devices, and asking for one that is not there.

use crate::program::{command, finish, run};

#[test]
fn the_cpu_is_always_listed() {
    let run = run(&["devices", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let devices = run.json();
    assert_eq!(devices.last().unwrap()["backend"], "cpu");
    assert_eq!(devices.iter().filter(|device| device["auto"] == true).count(), 1);
    assert!(devices.iter().all(|device| !device["reason"].as_str().unwrap().is_empty()));
}

#[test]
fn an_adapter_is_chosen_by_its_number() {
    let all = run(&["devices", "--json", "--kernel", "wgpu"]);
    if all.stderr.contains("no GPU adapter") {
        return;
    }
    let devices = all.json();
    for (number, device) in devices.iter().enumerate() {
        assert_eq!(device["index"], number);
        let chosen = run(&["devices", "--json", "--kernel", "wgpu", "--adapter", &format!("#{number}")]);
        assert_eq!(chosen.json(), std::slice::from_ref(device));
    }
    // Whatever it is: software is left out only where nothing is named.
    let named =
        run(&["bench", "addmm", "--m", "8", "--k", "8", "--n", "8", "--seconds", "0", "--json", "--adapter", "#0"]);
    assert_eq!(named.code, Some(0), "{}", named.stderr);
    assert!(named.json()[0]["adapter"].as_str().unwrap().starts_with(devices[0]["name"].as_str().unwrap()));
    let none = run(&["bench", "addmm", "--kernel", "wgpu", "--adapter", &format!("#{}", devices.len())]);
    none.failed_with(&["no GPU adapter matches `#", "found #0 "]);
}

#[test]
fn a_tier_of_matrices_that_is_missing_is_an_error() {
    let all = run(&["devices", "--json"]).json();
    for device in &all {
        assert!(["none", "wgsl", "spirv"].contains(&device["matrices"]["tier"].as_str().unwrap()));
        assert!(!device["matrices"]["reason"].as_str().unwrap().is_empty());
    }
    let cpu = run(&["bench", "addmm", "--m", "8", "--kernel", "cpu", "--matrices", "wgsl"]);
    cpu.refused_with(&["--kernel cpu has no matrices"]);
    assert!(run(&["devices", "--matrices", "fast"]).stderr.contains("possible values: none, wgsl, spirv"));
}

#[test]
fn devices_with_matrices_are_tested_on_request() {
    let listed = run(&["devices", "--json"]).json();
    let tested = run(&["devices", "--json", "--test"]).json();
    assert_eq!(listed.len(), tested.len());
    for (listed, tested) in listed.iter().zip(&tested) {
        assert_eq!(listed["tested"], false);
        assert_eq!(tested["tested"], listed["matrices"]["tier"] != "none");
        assert_eq!(tested["matrices"], listed["matrices"]);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_driver_wgpu_says_what_is_missing() {
    for args in
        [&["rank", "--kernel", "wgpu"][..], &["devices", "--kernel", "wgpu"], &["verify", "--kernel", "wgpu", "."]]
    {
        let run = finish(command(args).env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent"));
        run.failed_with(&["no GPU adapter", "install"]);
        assert_eq!(run.stdout, "");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_driver_auto_takes_the_cpu() {
    let run = finish(command(&["rank", "--json", "--top", "1"]).env("VK_DRIVER_FILES", "/nonexistent"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines = run.json();
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!((&summary["kernel"], &summary["adapter"]), (&"auto".into(), &"cpu".into()));
    assert!(run.stderr.contains("running on the CPU"), "{}", run.stderr);
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_display_nothing_is_said_of_it() {
    let mut devices = command(&["devices"]);
    devices.env_remove("DISPLAY").env_remove("XDG_RUNTIME_DIR");
    for folder in [None, Some("/nonexistent")] {
        if let Some(folder) = folder {
            devices.env("XDG_RUNTIME_DIR", folder);
        }
        let run = finish(&mut devices);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{folder:?}");
    }
}

#[test]
fn what_libraries_log_is_printed_if_asked_twice() {
    let said = |flag: &str| {
        let run = run(&["devices", "--kernel", "auto", flag]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr
    };
    let (once, twice) = (said("-v"), said("-vv"));
    // wgpu opens its backends whether or not they have an adapter.
    assert!(twice.lines().count() > once.lines().count(), "-v printed\n{once}\n-vv printed\n{twice}");
    assert!(twice.lines().all(|line| line.contains(" s  ")), "{twice}");
}
