//! Independent pieces of work on several threads of the host.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread;

use crate::progress::Interrupt;

/// Calls `run` for each of `tasks`, in their order, with `threads` of them at a time, and
/// hands each result to `done` on the caller's thread as it comes. After an interrupt no
/// further task is begun, and those that run are waited for.
///
/// # Errors
/// The first failure of `run` or `done`, after which nothing more is begun either.
pub fn run_all<T, R, E>(
    tasks: Vec<T>,
    threads: usize,
    interrupt: &Interrupt,
    run: impl Fn(&T) -> Result<R, E> + Sync,
    mut done: impl FnMut(T, R) -> Result<(), E>,
) -> Result<(), E>
where
    T: Send,
    R: Send,
    E: Send,
{
    let mut outcome = Ok(());
    let next = Mutex::new(tasks.into_iter());
    let take = || {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        next.next().filter(|_| !interrupt.requested())
    };
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| {
                let (send, take, run) = (send.clone(), &take, &run);
                scope.spawn(move || {
                    while let Some(task) = take() {
                        let result = run(&task);
                        // Nobody listens after a failure.
                        if send.send((task, result)).is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        drop(send);
        outcome = receive
            .iter()
            .try_for_each(|(task, result)| done(task, result?));
        drop(receive);
        for worker in workers {
            if let Err(panic) = worker.join() {
                resume_unwind(panic);
            }
        }
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once_whatever_the_threads() {
        for threads in [1, 3, 100] {
            let mut sum = 0;
            let tasks: Vec<u64> = (0..50).collect();
            let done = |task: u64, square: u64| {
                assert_eq!(square, task * task);
                sum += square;
                Ok(())
            };
            let interrupt = Interrupt::manual();
            let square = |task: &u64| Ok::<_, ()>(task * task);
            run_all(tasks, threads, &interrupt, square, done).expect("no failure");
            assert_eq!(sum, 40_425, "{threads}");
        }
    }

    #[test]
    fn nothing_is_begun_after_a_failure_or_an_interrupt() {
        let interrupt = Interrupt::manual();
        let run = |task: &u64| match task {
            2 => Err("two"),
            task => Ok(*task),
        };
        let mut done = Vec::new();
        let failed = run_all(vec![1, 2], 1, &interrupt, run, |task, _| {
            done.push(task);
            Ok(())
        });
        assert_eq!(failed, Err("two"));
        assert_eq!(done, [1]);
        let mut done = Vec::new();
        let stopped = run_all(
            vec![1, 3, 4],
            1,
            &interrupt,
            |_| {
                interrupt.request();
                Ok::<_, ()>(())
            },
            |task, ()| {
                done.push(task);
                Ok(())
            },
        );
        assert!(stopped.is_ok());
        assert_eq!(done, [1]);
    }
}
