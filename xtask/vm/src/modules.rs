//! The order in which modules go into a kernel, from depmod's `modules.dep`.

/// The files of these modules and of all that they need, each after what it needs, relative to the folder of
/// `modules.dep`. A module that is not listed is built into the kernel.
pub fn load_order(dependencies: &str, modules: &[&str]) -> Vec<String> {
    let lines: Vec<_> = dependencies.lines().filter_map(|line| line.split_once(':')).collect();
    let mut order: Vec<String> = Vec::new();
    for module in modules {
        let Some((file, needs)) = lines.iter().find(|(file, _)| name(file) == normalised(module)) else { continue };
        // modules.dep lists all that a module needs, also indirectly, with the most basic last.
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

/// The kernel takes `-` and `_` in a module's name for the same.
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
    fn every_module_comes_once_and_after_what_it_needs() {
        let order = load_order(DEPENDENCIES, &["virtio_pci", "virtiofs"]);
        let names: Vec<_> = order.iter().map(|file| name(file)).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_pci", "fuse", "virtiofs"]);
    }

    #[test]
    fn names_match_with_either_dash_and_whole() {
        assert_eq!(load_order(DEPENDENCIES, &["virtio_rng"]).len(), 2);
        assert_eq!(load_order(DEPENDENCIES, &["virt"]), Vec::<String>::new());
    }

    #[test]
    fn what_is_built_in_needs_no_file() {
        assert_eq!(load_order(DEPENDENCIES, &["overlay"]), Vec::<String>::new());
    }
}
