//! Input of the guest: its settings, and a script with the environment and the command.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use super::{kernels::Kernel, qemu::NICS, store::Cached};

/// Modules that tests of the network stack need.
const MODULES: &[&str] = &["virtio_net", "veth", "bridge", "nf_tables", "nf_conntrack"];

/// Environment variables to pass to the guest. A name that ends in `_` is a prefix.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TZ",
    "TMPDIR",
    "LC_",
    "OTEL_",
    "UNDERCURRENT_",
    "INSTA_",
    "PROPTEST_",
    "NEXTEST_",
    "RUST_",
    "RUSTUP_",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "CARGO_TERM_COLOR",
];

/// Returns the settings that the guest's init scripts read, as shell assignments.
pub fn settings(kernel: &Cached, modules: &[String], share: &Path) -> Vec<u8> {
    let modules: Vec<_> = MODULES.iter().copied().chain(modules.iter().map(String::as_str)).collect();
    let nics: Vec<_> = NICS.iter().map(|nic| format!("{}={}", nic.address, nic.name)).collect();
    let assign = |name: &str, value: &OsStr| [name.as_bytes(), b"=", &quoted(value), b"\n"].concat();
    [
        assign("release", kernel.release.as_ref()),
        assign("kernel_modules", kernel.modules.as_os_str()),
        assign("load", modules.join(" ").as_ref()),
        assign("nics", nics.join(" ").as_ref()),
        assign("share", share.as_os_str()),
    ]
    .concat()
}

/// Returns the shell script that executes the command. `extra` contains variables as NAME or NAME=VALUE.
pub fn command(kernel: &Kernel, extra: &[String], folder: &Path, share: &Path, command: &[OsString]) -> Vec<u8> {
    let own = [("UNDERCURRENT_VM".into(), kernel.name.into()), ("UNDERCURRENT_SHARE".into(), share.into())];
    let mut script = Vec::new();
    for (name, value) in
        env::vars_os().filter(|(name, _)| passes(name)).chain(extra.iter().filter_map(variable)).chain(own)
    {
        script.extend([b"export ", name.as_bytes(), b"=", &quoted(&value), b"\n"].concat());
    }
    script.extend([b"cd ", quoted(folder.as_os_str()).as_slice(), b" || exit\nexec"].concat());
    if let [line] = command {
        script.extend([b" /bin/sh -c ", quoted(line).as_slice()].concat());
    } else {
        script.extend(command.iter().flat_map(|word| [b" ", quoted(word).as_slice()].concat()));
    }
    script.push(b'\n');
    script
}

fn passes(name: &OsStr) -> bool {
    let name = name.as_bytes();
    // A shell cannot assign to other names.
    let ordinary = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    ordinary
        && PASSED.iter().any(|passed| {
            if passed.ends_with('_') { name.starts_with(passed.as_bytes()) } else { name == passed.as_bytes() }
        })
}

fn variable(text: &String) -> Option<(OsString, OsString)> {
    match text.split_once('=') {
        Some((name, value)) => Some((name.into(), value.into())),
        None => env::var_os(text).map(|value| (text.into(), value)),
    }
}

/// Quotes a word for the shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = b"'".to_vec();
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use std::{os::unix::ffi::OsStringExt as _, process::Command};

    use super::*;
    use crate::kernels::named;

    /// Returns the output of the script under sh.
    fn output(extra: &[&str], words: &[&str]) -> String {
        let extra: Vec<_> = extra.iter().map(|text| (*text).to_owned()).collect();
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let script = command(named("6.12").unwrap(), &extra, Path::new("/"), Path::new("/the share"), &words);
        let output = Command::new("/bin/sh").arg("-c").arg(OsString::from_vec(script)).env_clear().output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn words_are_not_expanded() {
        assert_eq!(
            output(&[], &["printf", "<%s>", "a b", "it's", "$HOME", "*", "new\nline", ""]),
            "<a b><it's><$HOME><*><new\nline><>"
        );
    }

    #[test]
    fn a_single_argument_is_a_shell_command() {
        assert_eq!(output(&[], &["cd /tmp && pwd; echo $((6 * 7))"]), "/tmp\n42\n");
    }

    #[test]
    fn the_environment_has_kernel_share_and_extra_variables() {
        let words = ["echo \"$UNDERCURRENT_VM|$UNDERCURRENT_SHARE|$COLOUR|$PWD\""];
        assert_eq!(output(&["COLOUR=dark red", "NOT_SET_ANYWHERE"], &words), "6.12|/the share|dark red|/\n");
    }

    #[test]
    fn only_listed_variables_pass() {
        for name in ["PATH", "RUST_LOG", "OTEL_EXPORTER_OTLP_ENDPOINT", "CARGO_TARGET_DIR"] {
            assert!(passes(name.as_ref()), "{name}");
        }
        for name in ["PATHS", "SSH_AUTH_SOCK", "CARGO_PKG_NAME", "RUST_A-B", "BASH_FUNC_x%%"] {
            assert!(!passes(name.as_ref()), "{name}");
        }
    }
}
