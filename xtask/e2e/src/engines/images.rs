//! Replacements for public images, built from programs of this machine, so that tests do not need a registry.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask_common::{hash, machine, packages};
use xtask_e2e::{
    collector,
    jaeger::JAEGER,
    prometheus::{PROMETHEUS, PROMTOOL},
};

use super::{
    Engine,
    archive::{Archive, Config},
};

/// The files and the configuration of an image.
struct Image {
    tree: tempfile::TempDir,
    config: Config,
}

/// Loads replacements for all images that examples/docker-compose uses.
pub fn provide(engine: &dyn Engine, sidecar: &Path) -> anyhow::Result<()> {
    let collector = format!("otel/opentelemetry-collector-contrib:{}", collector::VERSION);
    collector_image()?.load(engine, &collector)?;
    jaeger_image()?.load(engine, &format!("jaegertracing/jaeger:{}", JAEGER.version))?;
    prometheus_image()?.load(engine, &format!("prom/prometheus:v{}", PROMETHEUS.version))?;
    python()?.load(engine, "python:3.11.11-slim-bookworm")?;
    rust(sidecar)?.load(engine, "rust:1.95-slim-bookworm")?;
    glibc(sidecar)?.load(engine, "gcr.io/distroless/cc-debian12:latest")
}

/// Loads an image with a program of this machine as `/program`.
pub fn program(engine: &dyn Engine, program: &Path, tag: &str) -> anyhow::Result<()> {
    let mut image = Image::new()?;
    image.add(program, "program")?;
    let copy = image.tree.path().join("program");
    image.add_libraries(&copy)?;
    image.load(engine, tag)
}

/// Returns the collector's image, with user, paths and arguments of the public image.
fn collector_image() -> anyhow::Result<Image> {
    let mut image = Image::new()?;
    image.add(&collector::path()?, "otelcol-contrib")?;
    image.config = Config {
        user: "10001:10001",
        entrypoint: vec!["/otelcol-contrib"],
        cmd: vec!["--config", "/etc/otelcol-contrib/config.yaml"],
    };
    Ok(image)
}

/// Returns Jaeger's image, with the path of the public image.
fn jaeger_image() -> anyhow::Result<Image> {
    let mut image = Image::new()?;
    image.add(&JAEGER.path()?, "cmd/jaeger/jaeger-linux")?;
    image.config = Config { user: "10001:10001", entrypoint: vec!["/cmd/jaeger/jaeger-linux"], cmd: Vec::new() };
    Ok(image)
}

/// Returns the image of Prometheus, with the paths of the public image.
fn prometheus_image() -> anyhow::Result<Image> {
    let mut image = Image::new()?;
    image.add(&PROMETHEUS.path()?, "bin/prometheus")?;
    image.add(&PROMTOOL.path()?, "bin/promtool")?;
    image.config = Config { user: "", entrypoint: vec!["/bin/prometheus"], cmd: Vec::new() };
    Ok(image)
}

/// The packages of the example's services.
const REQUIREMENTS: &str = "examples/docker-compose/services/requirements.txt";

/// Returns an image of Debian's Python. Its `pip` installs the packages of the example's services from the image, after checking that the
/// arguments and the list are correct.
fn python() -> anyhow::Result<Image> {
    packages::install(&["python3", "busybox-static"])?;
    let python = fs::canonicalize("/usr/bin/python3").context("no /usr/bin/python3")?;
    let name = python.file_name().and_then(|name| name.to_str()).context("the path of Python has no file name")?;
    let mut image = Image::new()?;
    image.add_package("python3-minimal")?;
    for package in [format!("{name}-minimal"), format!("lib{name}-minimal"), format!("lib{name}-stdlib")] {
        image.add_package(&package)?;
    }
    image.add_libraries(&python)?;
    for module in files(Path::new("/usr/lib").join(name).join("lib-dynload"))? {
        image.add_libraries(&module)?;
    }
    image.add_applets(&["sh", "cmp", "mkdir", "cp"])?;
    let requirements = machine::workspace().join(REQUIREMENTS);
    image.add(&requirements, "packages/requirements.txt")?;
    copy_tree(&installed(&requirements, name)?, &image.tree.path().join("packages/modules"))?;
    image.add_script(
        "bin/pip",
        &format!(
            "#!/bin/sh\nset -eux\n\
             test \"$*\" = 'install --no-cache-dir --requirement requirements.txt'\n\
             cmp requirements.txt /packages/requirements.txt\n\
             mkdir -p /usr/local/lib/{name}\n\
             cp -r /packages/modules /usr/local/lib/{name}/dist-packages\n"
        ),
    )?;
    Ok(image)
}

/// Returns a folder of the cache with the packages of a list, for a Python, `python3.N`.
fn installed(requirements: &Path, python: &str) -> anyhow::Result<PathBuf> {
    let content = fs::read(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = machine::cache("python")?.join(format!("{python}-{}", &hash::sha256(&content)[..12]));
    if !folder.join("complete").exists() {
        let version = python.trim_start_matches("python");
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--python-version",
            version,
            "--target",
        ]);
        machine::output(pip.arg(&folder).arg("--requirement").arg(requirements))?;
        fs::write(folder.join("complete"), "")?;
    }
    Ok(folder)
}

fn files(folder: impl AsRef<Path>) -> anyhow::Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    machine::output(Command::new("cp").arg("--recursive").args([from, to])).map(drop)
}

/// Returns a replacement for the compiler's image. Its `cargo` copies the sidecar built here, after checking that the arguments are
/// correct and that the build context has the necessary sources.
fn rust(sidecar: &Path) -> anyhow::Result<Image> {
    const CARGO: &str = "#!/bin/sh\nset -eux\n\
        test \"$*\" = 'build --release --locked --package undercurrent'\n\
        test -f Cargo.lock -a -f receiver/src/main.rs -a -f receiver-ebpf/src/lib.rs -a -f xtask/Cargo.toml\n\
        test ! -e target -a ! -e .git\n\
        mkdir -p target/release\n\
        cp /built/undercurrent target/release/undercurrent\n";
    packages::install(&["busybox-static"])?;
    let mut image = Image::new()?;
    image.add_applets(&["sh", "test", "mkdir", "cp"])?;
    image.add(sidecar, "built/undercurrent")?;
    image.add_script("bin/cargo", CARGO)?;
    Ok(image)
}

/// Returns an image with the sidecar's shared libraries.
fn glibc(sidecar: &Path) -> anyhow::Result<Image> {
    let mut image = Image::new()?;
    image.add_libraries(sidecar)?;
    Ok(image)
}

impl Image {
    fn new() -> anyhow::Result<Self> {
        let tree = tempfile::tempdir().context("cannot create a folder for an image")?;
        // Every user of the image needs access to its root.
        fs::set_permissions(tree.path(), Permissions::from_mode(0o755))?;
        // Engines reject an image without files.
        fs::create_dir(tree.path().join("etc"))?;
        Ok(Self { tree, config: Config::default() })
    }

    /// Adds a file of this machine at a path in the image.
    fn add(&mut self, file: &Path, path: &str) -> anyhow::Result<()> {
        let target = self.tree.path().join(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        // Copies the mode, and the target of a symbolic link.
        fs::copy(file, &target).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Adds commands of busybox.
    fn add_applets(&mut self, names: &[&str]) -> anyhow::Result<()> {
        names.iter().try_for_each(|name| self.add(Path::new("/bin/busybox"), &format!("bin/{name}")))
    }

    /// Adds an executable script at a path in the image.
    fn add_script(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        let target = self.tree.path().join(path);
        fs::write(&target, text).context("cannot write an image's file")?;
        Ok(fs::set_permissions(&target, Permissions::from_mode(0o755))?)
    }

    /// Adds the shared libraries and the loader of a program; none for a static program.
    fn add_libraries(&mut self, program: &Path) -> anyhow::Result<()> {
        let printed = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        ensure!(!printed.contains("not found"), "{} lacks libraries here:\n{printed}", program.display());
        for library in libraries(&printed) {
            let path = library.to_str().context("a library's path is not UTF-8")?.trim_start_matches('/');
            self.add(&library, path)?;
        }
        Ok(())
    }

    /// Adds the files of a Debian package, without documentation.
    fn add_package(&mut self, package: &str) -> anyhow::Result<()> {
        let listed = machine::output(Command::new("dpkg").args(["--listfiles", package]))?;
        let documentation = |file: &&str| file.starts_with("/usr/share/");
        for file in listed.lines().filter(|file| !documentation(file)).map(Path::new) {
            let path = file.to_str().context("a package's path is not UTF-8")?.trim_start_matches('/');
            if file.is_symlink() {
                let link = self.tree.path().join(path);
                fs::create_dir_all(link.parent().context("a package's file has no parent folder")?)?;
                symlink(fs::read_link(file)?, link).with_context(|| format!("cannot copy {}", file.display()))?;
            } else if file.is_file() {
                self.add(file, path)?;
            }
        }
        Ok(())
    }

    fn load(self, engine: &dyn Engine, tag: &str) -> anyhow::Result<()> {
        let archive = Archive::create(self.tree.path(), &self.config, tag);
        archive
            .and_then(|archive| engine.load(&archive.path()))
            .with_context(|| format!("cannot create the image {tag}"))
    }
}

/// Returns the files in the output of `ldd`: lines `NAME => FILE (ADDRESS)`, and `FILE (ADDRESS)` for the loader.
fn libraries(printed: &str) -> Vec<PathBuf> {
    let words = printed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_parsed_from_ldd() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            libraries(printed),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
