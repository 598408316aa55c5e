//! What is made of `/sys`, on machines that are written down here, and of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use vellum_calibrate::{Effort, Error, Host, HostError, Reach, calibrate, reached};
use vellum_description::Description;

/// A directory of a test's own, in the place of `/sys/devices/system`.
struct System(PathBuf);

impl System {
    fn new(name: &str) -> System {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        System(path)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        let directory = path.parent().expect("it is below the system");
        fs::create_dir_all(directory).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    /// A CPU with the lists of those that share its core and its last cache.
    fn cpu(&self, cpu: usize, socket: usize, core: &str, cache: &str) {
        let of = |name: &str| format!("cpu/cpu{cpu}/{name}");
        self.file(&of("topology/physical_package_id"), &format!("{socket}\n"));
        self.file(&of("topology/thread_siblings_list"), &format!("{core}\n"));
        self.file(&of("cache/index0/level"), "1\n");
        self.file(&of("cache/index0/shared_cpu_list"), &format!("{core}\n"));
        self.file(&of("cache/index1/level"), "3\n");
        self.file(&of("cache/index1/size"), "32768K\n");
        self.file(&of("cache/index1/shared_cpu_list"), &format!("{cache}\n"));
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Two sockets of two caches of two cores of two threads, siblings eight apart, a node a
/// socket.
fn two_sockets(name: &str) -> System {
    let system = System::new(name);
    for cpu in 0..16 {
        let core = cpu % 8;
        let socket = core / 4;
        let cache = core / 2 * 2;
        system.cpu(
            cpu,
            socket,
            &format!("{core},{}", core + 8),
            &format!("{cache}-{},{}-{}", cache + 1, cache + 8, cache + 9),
        );
    }
    system.file("node/online", "0-1\n");
    system.file("node/node0/cpulist", "0-3,8-11\n");
    system.file("node/node1/cpulist", "4-7,12-15\n");
    system
}

#[test]
fn sockets_caches_cores_and_threads_are_found() {
    let system = two_sockets("two-sockets");
    let cpus: Vec<usize> = (0..16).collect();
    let host = Host::of_cpus(&cpus, &system.0).expect("it is described");
    let topology = host.topology().expect("it is regular");
    assert_eq!(topology.threads_per_core, 2);
    assert_eq!(topology.cores_per_cluster, 2);
    assert_eq!(topology.clusters_per_socket, 2);
    assert_eq!(topology.sockets_per_board, 2);
    assert_eq!(topology.nodes_per_socket, 1);
    assert_eq!(topology.boards, 1);
    let last = host.cpus()[15];
    assert_eq!(
        (last.core, last.cluster, last.node, last.socket),
        (7, 6, 1, 1)
    );
}

#[test]
fn only_the_cpus_that_may_be_used_count() {
    let system = two_sockets("one-socket-of-two");
    let host = Host::of_cpus(&[4, 5, 6, 7], &system.0).expect("it is described");
    let topology = host.topology().expect("it is regular");
    assert_eq!(topology.threads_per_core, 1);
    assert_eq!(topology.sockets_per_board, 1);
    assert_eq!(topology.clusters_per_socket, 2);
}

#[test]
fn cores_that_are_not_alike_are_refused_with_what_to_do() {
    let system = two_sockets("irregular");
    let host = Host::of_cpus(&[0, 1, 8], &system.0).expect("it is described");
    let error = host
        .topology()
        .expect_err("one core has two threads, one has one");
    let HostError::Irregular {
        wholes,
        least,
        most,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*wholes, *least, *most), ("cores", 1, 2));
    assert!(error.to_string().contains("taskset"), "{error}");
}

#[test]
fn without_caches_and_nodes_each_core_stands_alone() {
    let system = System::new("bare");
    for cpu in 0..4 {
        system.file(
            &format!("cpu/cpu{cpu}/topology/physical_package_id"),
            "-1\n",
        );
    }
    let host = Host::of_cpus(&[0, 1, 2, 3], &system.0).expect("it is described");
    let topology = host.topology().expect("it is regular");
    assert_eq!(topology.clusters_per_socket, 4);
    assert_eq!(topology.cores_per_cluster, 1);
    assert_eq!(topology.sockets_per_board, 1);
}

#[test]
fn a_file_that_is_not_a_list_is_named() {
    let system = two_sockets("damaged");
    for damage in ["0-", "x", "3-1", "1-99999999999"] {
        system.file("cpu/cpu3/topology/thread_siblings_list", damage);
        let error = Host::of_cpus(&[0, 3], &system.0).expect_err("damaged");
        let text = error.to_string();
        assert!(
            text.contains("cpu3/topology/thread_siblings_list"),
            "{text}"
        );
        assert!(text.contains(damage), "{text}");
    }
}

#[test]
fn this_machine_is_described_by_a_text_that_can_be_read_again() {
    let mut steps = 0;
    let measured = calibrate(Effort::Quick, &mut |_| {
        steps += 1;
        true
    });
    let machine = match measured {
        Ok(machine) => machine,
        // Three rounds on a busy machine may contradict one another, and say so.
        Err(Error::Contradiction(flaws)) => {
            assert!(!flaws.is_empty());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(steps >= 9, "{steps} steps");
    assert!(machine.notes.contains("QUICKLY"), "{}", machine.notes);
    // Whether pages of 2 MiB reach the TLB is said, whatever was found.
    assert!(machine.notes.contains("ages of 2 MiB"), "{}", machine.notes);
    let translation = machine.translation.as_ref().expect("it was measured");
    assert!(translation.tlb.iter().any(|tlb| tlb.level == 2));
    let again = Description::parse(&machine.to_string(), "this.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), machine);
}

#[test]
fn pages_reach_the_tlb_if_they_save_most_of_what_small_ones_take() {
    let reach = |large_ns| Reach {
        dense_ns: 2.0,
        small_ns: 4.0,
        large_ns,
    };
    assert!(reach(2.1).reaches() && reach(2.9).reaches());
    assert!(!reach(3.1).reaches() && !reach(4.2).reaches());
    assert!(reached(Some(&reach(2.0))).starts_with("Pages of 2 MiB reach the TLB: "));
    assert!(reached(Some(&reach(4.0))).starts_with("Pages of 2 MiB do not reach the TLB: "));
    assert!(reached(None).contains("is not known"));
}

#[test]
fn measuring_ends_where_the_caller_asks_to_stop() {
    let mut left = 2;
    let stopped = calibrate(Effort::Quick, &mut |_| {
        left -= 1;
        left > 0
    });
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
}
