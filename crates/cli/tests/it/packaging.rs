//! What is packaged of the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn told(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

fn ran(program: &str, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_debian_package_has_the_command_its_service_and_its_settings() {
    let has_tools = Command::new("dpkg-deb").arg("--version").output().is_ok();
    if !has_tools {
        // Other systems than Debian's build no such packages.
        let wanted = std::env::var("TEST_CLIENTS").is_ok_and(|wanted| wanted == "required");
        assert!(!wanted, "dpkg-deb is missing");
        eprintln!("skipped: dpkg-deb is missing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The program itself would take a minute to be packed.
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho it runs\n").unwrap();
    let script = packaging().join("deb");
    let out = dir.path().join("out");
    let output = Command::new(&script)
        .args([&program, Path::new("0.9.1"), &out])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let package = PathBuf::from(printed.trim());
    assert!(printed.contains("headwater_0.9.1_"), "{printed}");
    let fields = ran("dpkg-deb", &[Path::new("--field"), &package]);
    for field in [
        "Package: headwater",
        "Version: 0.9.1",
        "Maintainer: ",
        "Depends: ",
    ] {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    let tree = dir.path().join("tree");
    ran("dpkg-deb", &[Path::new("--raw-extract"), &package, &tree]);
    let file = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
    assert!(file("usr/bin/headwater").contains("it runs"));
    let unit = file("usr/lib/systemd/system/headwater.service");
    assert!(
        unit.contains("ExecStart=/usr/bin/headwater serve "),
        "{unit}"
    );
    let settings = std::fs::read_to_string(packaging().join("headwater.toml")).unwrap();
    assert_eq!(file("etc/headwater/headwater.toml"), settings);
    assert_eq!(file("DEBIAN/conffiles"), "/etc/headwater/headwater.toml\n");
    assert!(
        tree.join("usr/share/doc/headwater/grafana/dashboards/headwater.json")
            .exists()
    );
    for script in ["postinst", "prerm", "postrm"] {
        ran("sh", &[Path::new("-n"), &tree.join("DEBIAN").join(script)]);
    }
    // Nobody but root may write what everybody runs.
    let listed = ran("dpkg-deb", &[Path::new("--contents"), &package]);
    for line in listed.lines() {
        assert!(
            line.contains("root/root") && !line.starts_with("drwxrwx"),
            "{line}"
        );
    }
    // What is missing is said.
    let missing = Command::new(&script)
        .args([Path::new("nothing-here"), Path::new("1"), &out])
        .output()
        .unwrap();
    assert!(!missing.status.success() && told(&missing).contains("is missing"));
}
