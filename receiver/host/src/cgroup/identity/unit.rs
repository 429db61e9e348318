//! Cgroup names that systemd gives to units.

/// The suffixes of units with a cgroup, except slices.
const UNITS: [&[u8]; 5] = [b".service", b".scope", b".mount", b".swap", b".socket"];
/// The limit `UNIT_NAME_MAX` of systemd, including the terminating NUL.
const LONGEST: usize = 256;

/// Returns true for the name of a slice.
pub(super) fn is_slice(name: &[u8]) -> bool {
    is_unit(name, b".slice")
}

/// Returns the name of a unit other than a slice, with its escapes, in the notation of `systemctl`.
pub(super) fn named(name: &[u8]) -> Option<String> {
    // systemd prepends an underscore to names that collide with kernel files in a cgroup, for example `cpu.service`.
    let name = name.strip_prefix(b"_").unwrap_or(name);
    let known = UNITS.iter().any(|suffix| is_unit(name, suffix));
    if known { str::from_utf8(name).ok().map(str::to_owned) } else { None }
}

fn is_unit(name: &[u8], suffix: &[u8]) -> bool {
    // The characters are `VALID_CHARS_WITH_AT` in systemd's unit-name.c.
    let valid = |byte: &u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(byte);
    name.len() < LONGEST && name.len() > suffix.len() && name.ends_with(suffix) && name.iter().all(valid)
}

/// Decodes the `\xNN` escapes in a part of a unit name. Returns `None` for invalid UTF-8 or an incomplete escape.
pub(super) fn unescape(name: &[u8]) -> Option<String> {
    let mut parts = name.split(|byte| *byte == b'\\');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.strip_prefix(b"x")?.split_at_checked(2)?;
        let digits =
            str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_systemd_rejects_are_not_units() {
        for name in [&b".service"[..], b"a b.service", b"a\xff.service", b"a.service.d", b"a.target", b"a.slice"] {
            assert_eq!(named(name), None, "{}", name.escape_ascii());
        }
        assert_eq!(named(&[&[b'a'; 248][..], b".service"].concat()), None);
        assert!(named(&[&[b'a'; 247][..], b".service"].concat()).is_some());
        assert_eq!(named(b"_cpu.service").as_deref(), Some("cpu.service"));
        assert_eq!(named(b"getty@tty1.service").as_deref(), Some("getty@tty1.service"));
        assert!(is_slice(b"system-serial\\x2dgetty.slice"));
        assert!(!is_slice(b".slice"));
    }

    #[test]
    fn escapes_are_decoded_or_rejected() {
        assert_eq!(unescape(b"a\\x2db\\xc3\\xa4").as_deref(), Some("a-b\u{e4}"));
        assert_eq!(unescape(b"").as_deref(), Some(""));
        for incomplete in [&b"\\"[..], b"\\x", b"\\x2", b"\\x2g", b"\\y2d", b"\\xff", b"a\\\\x2d", b"\\x+1"] {
            assert_eq!(unescape(incomplete), None, "{}", incomplete.escape_ascii());
        }
    }
}
