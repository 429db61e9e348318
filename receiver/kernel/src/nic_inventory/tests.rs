use super::*;

fn interface(name: &str, index: u32, clock: Option<u32>) -> Interface {
    Interface { name: name.to_owned(), index, clock }
}

fn refused(number: u32) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[test]
fn unusable_nics_are_reported_with_reasons() {
    let interfaces = vec![interface("eth0", 2, Some(0)), interface("eth1", 3, None), interface("eth2", 4, Some(1))];
    let found = NicInventory::among(interfaces.clone(), refused);
    assert_eq!(found.usable, interfaces[..1]);
    insta::assert_snapshot!(found.problems.join("\n"), @"
    the NIC of eth1 timestamps packets, but its driver registers no PTP clock
    cannot open /dev/ptp1, the clock of the NIC of eth2: permission denied; run as root, and in a container add the device (docker run --device /dev/ptp1; in Kubernetes a privileged container with the host's /dev)
    ");
}

#[test]
fn excess_nics_are_reported() {
    let interfaces: Vec<_> = (0..10).map(|index| interface(&format!("eth{index}"), index + 2, Some(0))).collect();
    let found = NicInventory::among(interfaces.clone(), refused);
    assert_eq!(found.usable, interfaces[..NICS]);
    assert_eq!(
        found.problems,
        ["eth8 is not measured: the maximum is 8 NICs", "eth9 is not measured: the maximum is 8 NICs"]
    );
}
