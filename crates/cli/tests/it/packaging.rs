//! What is packaged of the program.

use headwater_testing::{installed, or_skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn output_text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

fn ran(program: &str, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program}: {}",
        output_text(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_debian_package_has_the_command_its_service_and_its_settings() {
    // Other systems than Debian's build no such packages.
    if or_skip(installed("dpkg-deb")).is_none() {
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
    assert!(output.status.success(), "{}", output_text(&output));
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
    assert!(!missing.status.success() && output_text(&missing).contains("is missing"));
}

/// A program in the place of cargo, which says how it was called and leaves `built` where the
/// command would be.
fn in_place_of_cargo(dir: &Path, built: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let cargo = dir.join("cargo");
    let script = format!(
        "#!/bin/sh\necho \"$RUSTFLAGS|$*\" >{0}/called\nfor target; do :; done\nmkdir -p {0}/out/$target/release\ncp {1} {0}/out/$target/release/headwater\n",
        dir.display(),
        built.display()
    );
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    cargo
}

#[test]
fn one_target_each_builds_the_command_without_libraries_and_the_package() {
    let dir = tempfile::tempdir().unwrap();
    let make = |targets: &[&str], built: &Path| {
        let cargo = in_place_of_cargo(dir.path(), built);
        Command::new("make")
            .current_dir(packaging().join(".."))
            .args([
                "--no-print-directory",
                "--old-file=web",
                "--old-file=release",
            ])
            .arg(format!("CARGO={}", cargo.display()))
            .arg(format!(
                "CARGO_TARGET_DIR={}",
                dir.path().join("out").display()
            ))
            .args(targets)
            .output()
            .unwrap()
    };
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho it runs\n").unwrap();
    let output = make(&["static"], &script);
    assert!(output.status.success(), "{}", output_text(&output));
    let called = std::fs::read_to_string(dir.path().join("called")).unwrap();
    assert!(
        called.starts_with("-C target-feature=+crt-static|build --release --locked"),
        "{called}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let path = printed.trim_end().rsplit(' ').next().unwrap();
    assert!(
        path.ends_with("/release/headwater") && Path::new(path).exists(),
        "{printed}"
    );
    // What needs libraries after all is not handed out.
    let output = make(&["static"], Path::new("/bin/sh"));
    assert!(
        !output.status.success() && output_text(&output).contains("libraries"),
        "{}",
        output_text(&output)
    );
    let release = dir.path().join("out/release");
    std::fs::create_dir_all(&release).unwrap();
    std::fs::copy(&script, release.join("headwater")).unwrap();
    if Command::new("dpkg-deb").arg("--version").output().is_ok() {
        let output = make(&["deb"], &script);
        assert!(output.status.success(), "{}", output_text(&output));
        let package = std::fs::read_dir(dir.path().join("out/packages")).unwrap();
        let names: Vec<_> = package.map(|entry| entry.unwrap().file_name()).collect();
        let version = format!("headwater_{}_", env!("CARGO_PKG_VERSION"));
        assert!(
            names.len() == 1 && names[0].to_str().unwrap().starts_with(&version),
            "{names:?}"
        );
    }
}
