use super::*;

fn interface(name: &str, index: u32, clock: Option<u32>) -> Interface {
    Interface { name: name.to_owned(), index, clock }
}

fn refused(number: u32) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[test]
fn nics_that_cannot_be_used_say_why() {
    let interfaces = vec![interface("eth0", 2, Some(0)), interface("eth1", 3, None), interface("eth2", 4, Some(1))];
    let found = NicInventory::among(interfaces.clone(), refused);
    assert_eq!(found.usable, interfaces[..1]);
    insta::assert_snapshot!(found.problems.join("\n"), @"
    the NIC of eth1 stamps packets, and its driver shows no clock to compare them with
    /dev/ptp1, the clock of the NIC of eth2, cannot be opened: permission denied; run as root, and in a container give it the device (docker run --device /dev/ptp1; in Kubernetes a privileged container with the host's /dev)
    ");
}

#[test]
fn there_are_places_for_so_many_cards_and_no_more() {
    let interfaces: Vec<_> = (0..10).map(|index| interface(&format!("eth{index}"), index + 2, Some(0))).collect();
    let found = NicInventory::among(interfaces.clone(), refused);
    assert_eq!(found.usable, interfaces[..NICS]);
    assert_eq!(
        found.problems,
        ["eth8 is left out: 8 NICs are measured at most", "eth9 is left out: 8 NICs are measured at most"]
    );
}
