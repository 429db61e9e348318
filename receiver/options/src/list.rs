//! Lists of layers.

/// Sorts the requested layers into the order of `all`.
///
/// # Errors
/// If `requested` is empty or names a layer twice.
pub fn in_order<L: Copy + PartialEq>(all: &[L], requested: &[L]) -> Result<Vec<L>, &'static str> {
    let layers: Vec<L> = all.iter().copied().filter(|layer| requested.contains(layer)).collect();
    if layers.is_empty() {
        return Err("the list of layers is empty: name one, or switch the signal off with `enabled: false`");
    }
    if layers.len() < requested.len() {
        return Err("a layer is named twice: leave one out");
    }
    Ok(layers)
}
