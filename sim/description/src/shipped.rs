//! The descriptions that come with the program.

/// A description that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// How it is asked for.
    pub name: &'static str,
    /// The file in the repository.
    pub file: &'static str,
    /// What is in the file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped {
            name: $name,
            file: concat!("sim/machines/", $name, ".toml"),
            text: include_str!(concat!("../machines/", $name, ".toml")),
        }),*]
    };
}

/// All of them, oldest machine first.
pub const SHIPPED: &[Shipped] = shipped![
    "numa-q-16",
    "altix-512",
    "xeon-e5-2690",
    "xeon-104",
    "xeon-8176-8s",
    "epyc-milan-1s",
    "epyc-milan-2s",
    "generated-512",
];
