//! The plugins that come with the gateway, found by `use: std/NAME`.

/// Without `std/`.
pub const NAMES: [&str; 3] = ["filter", "key-check", "mask-fields"];

/// The component of a standard plugin.
pub fn standard(name: &str) -> Option<&'static [u8]> {
    COMPONENTS.iter().find(|(standard, _)| *standard == name).map(|(_, component)| *component)
}

/// Names with the bytes of their components.
const COMPONENTS: [(&str, &[u8]); 3] = [
    ("filter", include_bytes!(env!("TIDEGATE_STD_FILTER"))),
    ("key-check", include_bytes!(env!("TIDEGATE_STD_KEY_CHECK"))),
    ("mask-fields", include_bytes!(env!("TIDEGATE_STD_MASK_FIELDS"))),
];
