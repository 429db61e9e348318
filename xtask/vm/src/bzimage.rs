//! Unpacks the vmlinux in a bzImage. If QEMU starts a vmlinux, the guest boots three seconds faster.

use std::{
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, bail, ensure};

/// Offsets in the boot protocol's header (Documentation/arch/x86/boot.rst in the kernel's sources).
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;

/// Compression formats of kernels: magic bytes, and a command that unpacks its standard input.
const FORMATS: &[(&[u8], &[&str])] = &[
    (b"\x28\xb5\x2f\xfd", &["zstd", "-dqc"]),
    (b"\xfd7zXZ\0", &["xz", "-dqc"]),
    (b"\x1f\x8b", &["gzip", "-dqc"]),
    (b"\x02\x21\x4c\x18", &["lz4", "-dqc"]),
];

/// The Debian packages of the commands in [`FORMATS`].
pub const PACKAGES: &[&str] = &["zstd", "xz-utils", "gzip", "lz4"];

/// Unpacks the ELF vmlinux of a bzImage.
pub fn vmlinux(image: &[u8]) -> anyhow::Result<Vec<u8>> {
    let payload = payload(image).context("not a bzImage of boot protocol 2.08 or later")?;
    let Some((_, command)) = FORMATS.iter().find(|(magic, _)| payload.starts_with(magic)) else {
        bail!("unknown compression: it starts with {:02x?}", payload.get(..8).unwrap_or(payload));
    };
    let vmlinux = unpack(command, payload)?;
    ensure!(vmlinux.starts_with(b"\x7fELF"), "the output of {} is not an ELF file", command.join(" "));
    Ok(vmlinux)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| image.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)?.try_into().ok();
    // Zero means four: old kernels do not have the field.
    let sectors = match *image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let (offset, length): (usize, usize) = (word(PAYLOAD_OFFSET)?, word(PAYLOAD_LENGTH)?);
    image.get((sectors + 1) * SECTOR..)?.get(offset..)?.get(..length).filter(|payload| !payload.is_empty())
}

fn unpack(command: &[&str], payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The unpacked size follows the payload, and the commands warn about trailing bytes.
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let (mut input, mut output) = (child.stdin.take(), child.stdout.take());
    let mut unpacked = Vec::new();
    thread::scope(|scope| {
        // A command that closes its input early has read the whole payload.
        scope.spawn(move || input.as_mut().map(|input| input.write_all(payload)));
        output.as_mut().map(|output| output.read_to_end(&mut unpacked)).transpose()
    })?;
    child.wait()?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of two setup sectors, three bytes of protected-mode code and the payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * SECTOR + 3];
        image[SETUP_SECTORS] = 2;
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&3_u32.to_le_bytes());
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn a_payload_with_a_trailing_size_is_unpacked() {
        let elf = [b"\x7fELF".as_slice(), &[7; 100_000]].concat();
        let mut packed = unpack(&["gzip", "-c"], &elf).unwrap();
        packed.extend_from_slice(&100_004_u32.to_le_bytes());
        assert_eq!(vmlinux(&image(&packed)).unwrap(), elf);
    }

    #[test]
    fn other_files_are_an_error() {
        assert!(vmlinux(b"MZ").unwrap_err().to_string().contains("not a bzImage"));
        assert!(vmlinux(&image(b"plain text")).unwrap_err().to_string().contains("unknown compression"));
        let text = unpack(&["gzip", "-c"], b"text").unwrap();
        assert!(vmlinux(&image(&text)).unwrap_err().to_string().contains("not an ELF"));
        let mut truncated = image(&text);
        truncated.pop();
        assert!(vmlinux(&truncated).is_err());
    }
}
