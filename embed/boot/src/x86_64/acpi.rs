//! The processors, as ACPI's table `APIC` lists them.

use super::{DIRECT_BYTES, direct, read};

/// The root pointer: where the boot loader says, or in the firmware's area.
fn root_pointer(known: Option<u64>) -> Option<u64> {
    let is_root = |at: &u64| {
        // SAFETY: memory that the direct map covers, and that only firmware wrote.
        let bytes = unsafe { core::slice::from_raw_parts(direct(*at), 20) };
        bytes.starts_with(b"RSD PTR ")
            && bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
    };
    known.or_else(|| (0xe_0000..0x10_0000).step_by(16).find(is_root))
}

/// Calls `each` with the number of every processor's local interrupt controller.
pub fn each_processor(known: Option<u64>, mut each: impl FnMut(u32)) {
    let Some(root) = root_pointer(known) else {
        return;
    };
    // SAFETY: ACPI's tables are the firmware's, which has finished with them; those that the
    // direct map does not cover are left out.
    unsafe {
        let list = u64::from(read::<u32>(root + 16));
        let entries = (u64::from(read::<u32>(list + 4)) - 36) / 4;
        for index in 0..entries {
            let table = u64::from(read::<u32>(list + 36 + index * 4));
            if table + 8 > DIRECT_BYTES || read::<[u8; 4]>(table) != *b"APIC" {
                continue;
            }
            let end = table + u64::from(read::<u32>(table + 4));
            let mut at = table + 44;
            while at < end {
                let [kind, length] = read::<[u8; 2]>(at);
                if kind == 0 && read::<u32>(at + 4) & 1 != 0 {
                    each(u32::from(read::<u8>(at + 3)));
                }
                at += u64::from(length.max(2));
            }
        }
    }
}
