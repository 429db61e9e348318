//! Calls of the sidecar in shell commands.

use undercurrent::cli;

/// The name of the binary.
const PROGRAM: &str = "undercurrent";
/// The image of the examples. Its entry point is the binary.
const IMAGE: &str = "undercurrent:local";

/// Returns the command lines of the sidecar in a shell script, split into words.
pub fn calls(script: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    let mut command = String::new();
    for line in script.lines() {
        command.push_str(line);
        command.push('\n');
        // A command ends where quotes are closed and no backslash continues it.
        if let Some(words) = shlex::split(&command).filter(|_| !line.ends_with('\\')) {
            calls.extend(words.split(|word| matches!(&**word, "|" | "&&" | "||" | ";")).filter_map(call));
            command.clear();
        }
    }
    assert!(command.is_empty(), "unfinished command:\n{command}");
    calls
}

/// Returns the call of the sidecar in one command, if there is one.
fn call(words: &[String]) -> Option<Vec<String>> {
    let arguments = match words.iter().position(|word| word == IMAGE) {
        Some(image) if words[0] == "docker" && words[1] == "run" => &words[image + 1..],
        // The name of a release.
        _ if words.first().is_some_and(|word| word == "helm") => return None,
        _ if words.starts_with(&["cargo", "xtask", "run"].map(String::from)) => words.get(4..).unwrap_or_default(),
        _ => {
            // A name after an option belongs to the option, as in `--package undercurrent`.
            let is_option = |word: &String| word.starts_with('-') && word != "--";
            let is_program = |n: &usize| words[*n] == PROGRAM && !(*n > 0 && is_option(&words[*n - 1]));
            &words[(0..words.len()).find(is_program)? + 1..]
        }
    };
    // Redirections belong to the shell.
    let arguments = arguments.iter().take_while(|word| !matches!(&***word, ">" | ">>" | "2>" | "<")).cloned();
    Some(std::iter::once(PROGRAM.to_owned()).chain(arguments).collect())
}

/// Checks that the product's parser accepts each call of a script. Returns the number of calls.
pub fn check(script: &str, origin: &str) -> usize {
    let calls = calls(script);
    for words in &calls {
        // Help and the version have the status 0.
        if let Some(error) = cli::parse(words).err().filter(|error| error.exit_code() != 0) {
            panic!("{origin}: `{}`: {error}", words.join(" "));
        }
    }
    calls.len()
}

#[test]
fn calls_are_found_in_scripts() {
    let found = |script: &str| calls(script).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(found("sudo A=b undercurrent --interval 1 # comment"), ["undercurrent --interval 1"]);
    assert_eq!(found("cargo build --package undercurrent\nsudo install target/undercurrent /bin/"), [""; 0]);
    assert_eq!(found("undercurrent config example | sudo tee x.yaml"), ["undercurrent config example"]);
    assert_eq!(found("setpriv --caps +bpf \\\n  undercurrent doctor > out"), ["undercurrent doctor"]);
    assert_eq!(
        found("cargo xtask run -- doctor --probe\ncargo xtask run"),
        ["undercurrent doctor --probe", "undercurrent"]
    );
    assert_eq!(found("docker run --name undercurrent undercurrent:local run"), ["undercurrent run"]);
    assert_eq!(found("helm install undercurrent charts/undercurrent"), [""; 0]);
    assert_eq!(found("kubectl exec ds/undercurrent -- undercurrent doctor"), ["undercurrent doctor"]);
}
