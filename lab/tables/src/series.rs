//! What is compared: samples, by operation, of several kernels.

/// The samples of one kernel, design or machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// What was measured, in the order in which it is to be shown.
    pub operations: Vec<Operation>,
}

/// One thing that was measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Operation {
    /// What it is called; empty if there is nothing to tell it from.
    pub name: String,
    /// The samples, finite, in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Series {
    /// A series of one operation without a name.
    pub fn single(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Self {
        Self {
            name: name.into(),
            operations: vec![Operation {
                name: String::new(),
                samples: samples.into_iter().collect(),
            }],
        }
    }

    /// The samples of the operation called `name`.
    pub fn samples(&self, name: &str) -> Option<&[f64]> {
        let found = self.operations.iter().find(|op| op.name == name);
        found.map(|op| op.samples.as_slice())
    }
}

/// Series do not fit beside each other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    /// There is nothing to show.
    #[error("there are no samples")]
    Empty,
    /// Some have an operation that others lack.
    #[error("{without} has no samples of `{operation}`, which {with} has")]
    Missing {
        /// The operation.
        operation: String,
        /// A series that has it.
        with: String,
        /// A series that lacks it.
        without: String,
    },
    /// An operation is there, without samples.
    #[error("{0} has no samples")]
    NoSamples(
        /// The series, and its operation if that has a name.
        String,
    ),
}

/// Checks that all series have the operations of the first, with samples, and no
/// others.
pub(crate) fn check(series: &[Series]) -> Result<(), Mismatch> {
    let Some(first) = series.first().filter(|first| !first.operations.is_empty()) else {
        return Err(Mismatch::Empty);
    };
    let missing = |operation: &Operation, with: &Series, without: &Series| Mismatch::Missing {
        operation: operation.name.clone(),
        with: with.name.clone(),
        without: without.name.clone(),
    };
    for other in series {
        for operation in &other.operations {
            if operation.samples.is_empty() {
                let name = match operation.name.as_str() {
                    "" => other.name.clone(),
                    name => format!("{name} of {}", other.name),
                };
                return Err(Mismatch::NoSamples(name));
            }
            if first.samples(&operation.name).is_none() {
                return Err(missing(operation, other, first));
            }
        }
        let lacking = |op: &&Operation| other.samples(&op.name).is_none();
        if let Some(operation) = first.operations.iter().find(lacking) {
            return Err(missing(operation, first, other));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, operations: &[&str]) -> Series {
        let operation = |name: &&str| Operation {
            name: (*name).to_owned(),
            samples: vec![1.0],
        };
        Series {
            name: name.to_owned(),
            operations: operations.iter().map(operation).collect(),
        }
    }

    #[test]
    fn an_operation_that_one_series_lacks_is_told_from_either_side() {
        let said = |a: &[&str], b: &[&str]| {
            let refused = check(&[series("old", a), series("new", b)]);
            refused.expect_err("they differ").to_string()
        };
        let lacks = "new has no samples of `read`, which old has";
        assert_eq!(said(&["read", "write"], &["write"]), lacks);
        let lacks = "old has no samples of `read`, which new has";
        assert_eq!(said(&["write"], &["read", "write"]), lacks);
        let same = [series("old", &["a", "b"]), series("new", &["b", "a"])];
        assert_eq!(check(&same), Ok(()));
        assert_eq!(check(&[]), Err(Mismatch::Empty));
    }
}
