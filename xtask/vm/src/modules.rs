//! The load order of kernel modules, from depmod's `modules.dep`.

/// Returns the files of modules and of their dependencies in load order, relative to the folder of `modules.dep`. Modules that
/// `modules.dep` does not list are built into the kernel.
pub fn load_order(dependencies: &str, modules: &[&str]) -> Vec<String> {
    let lines: Vec<_> = dependencies.lines().filter_map(|line| line.split_once(':')).collect();
    let mut order: Vec<String> = Vec::new();
    for module in modules {
        let Some((file, needs)) = lines.iter().find(|(file, _)| name(file) == normalised(module)) else { continue };
        // modules.dep lists transitive dependencies, the most basic last.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.iter().any(|listed| listed == file) {
                order.push(file.to_owned());
            }
        }
    }
    order
}

fn name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    normalised(base.split('.').next().unwrap_or(base))
}

/// In the names of modules, the kernel treats `-` like `_`.
fn normalised(module: &str) -> String {
    module.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
kernel/fs/fuse/fuse.ko:
kernel/fs/fuse/virtiofs.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko kernel/fs/fuse/fuse.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/char/hw_random/virtio-rng.ko.xz: kernel/drivers/virtio/virtio.ko
";

    #[test]
    fn every_module_follows_its_dependencies() {
        let order = load_order(DEPENDENCIES, &["virtio_pci", "virtiofs"]);
        let names: Vec<_> = order.iter().map(|file| name(file)).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_pci", "fuse", "virtiofs"]);
    }

    #[test]
    fn dashes_and_underscores_are_equal() {
        assert_eq!(load_order(DEPENDENCIES, &["virtio_rng"]).len(), 2);
        assert_eq!(load_order(DEPENDENCIES, &["virt"]), Vec::<String>::new());
    }

    #[test]
    fn a_built_in_module_has_no_file() {
        assert_eq!(load_order(DEPENDENCIES, &["overlay"]), Vec::<String>::new());
    }
}
