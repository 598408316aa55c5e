//! What use is worth.

/// What is known of the use of a page since it was looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Used {
    /// Entries whose accessed mark was set.
    pub(crate) entries: u32,
    /// Used by a call, or by an entry the time before.
    pub(crate) once: bool,
    /// Used by calls at least twice.
    pub(crate) twice: bool,
    /// An entry that maps it maps a superpage.
    pub(crate) is_large: bool,
    /// An entry that maps it lies in a locked range.
    pub(crate) is_locked: bool,
}

/// What follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// The page may leave.
    Leave,
    /// It gets a second chance, and has then been used once.
    Stay,
    /// It becomes active.
    Activate,
}

/// By what a page is judged that has come to the old end of its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// `aging=lru`: it was inactive.
    Inactive,
    /// `aging=generations`: it came, and the use that brought it was not seen yet.
    Newcomer,
    /// `aging=generations`: any use that is found now is a further one.
    Aged,
    /// It is to leave, used or not.
    Forced,
}

/// What becomes of a page that was used so.
pub(crate) fn judge(used: Used, is_file: bool, rule: Rule) -> Judgement {
    if used.is_locked {
        return Judgement::Activate;
    }
    let is_used = match rule {
        Rule::Inactive => return judge_inactive(used, is_file),
        Rule::Newcomer => used.entries > 1,
        Rule::Aged => used.entries > 0,
        Rule::Forced => false,
    };
    match is_used {
        true => Judgement::Activate,
        false => Judgement::Leave,
    }
}

/// What becomes of an inactive page (`aging=lru`). A page of a file that entries used for the
/// first time gets a second chance, and becomes active when they use it again: most mappings of
/// files are read once (Linux's `page_check_references`, 2.6.33). What only calls used once
/// leaves. Pages that only swap can hold are active after one use.
fn judge_inactive(used: Used, is_file: bool) -> Judgement {
    match used {
        Used { twice: true, .. } => Judgement::Activate,
        Used { entries: 0, .. } => Judgement::Leave,
        Used {
            entries: 1, once, ..
        } if is_file && !once => Judgement::Stay,
        _ => Judgement::Activate,
    }
}
