//! Programs in the cache.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use xtask_common::machine;

/// Returns the path of a program in a subfolder of the cache, and builds the program if it is missing. `build` receives an empty
/// folder and returns the path of the program in it. A lock prevents concurrent builds.
pub fn program(
    subfolder: &str,
    name: &str,
    build: impl FnOnce(&Path) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<PathBuf> {
    let folder = machine::cache(subfolder)?;
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let lock = folder.join("lock");
    let lock = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
    lock.lock().context("cannot lock the cache's folder")?;
    // The previous owner of the lock may have built the program.
    if !program.is_file() {
        let work = tempfile::tempdir_in(&folder).context("cannot create a folder to build in")?;
        let built = build(work.path())?;
        fs::rename(&built, &program).with_context(|| format!("cannot move {name} to {}", program.display()))?;
    }
    Ok(program)
}
