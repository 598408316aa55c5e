//! What lies in the private directory of a script before it starts.
//!
//! Prose, a table, a small C program with its makefile and manual page, and a
//! tree of notes: about 60 files, 70 KiB. The prose follows from a seed and is
//! the same in every directory.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::stats::Random;

/// Words of the prose. Scripts look for some of them, so all occur often.
const WORDS: &str = "a and are as at below between bridge by clear cold every field follow for from \
                     garden grass green has hill house in into is it later light long many morning \
                     mountain never of old on open over path quiet rain river road round sea slow \
                     small some stone summer the there through to town tree under valley village \
                     wall water where which wide wind winter with wood";

/// Errors for `spell` to find.
const ERRORS: &str = "recieve seperate thier wich untill";

const QUEUE_H: &str = "\
#ifndef QUEUE_H
#define QUEUE_H
#include <stddef.h>

struct queue {
    size_t length, room, first;
    int *items;
};

int queue_init(struct queue *queue, size_t room);
int queue_put(struct queue *queue, int item);
int queue_get(struct queue *queue, int *item);
void queue_free(struct queue *queue);
#endif
";

const QUEUE_C: &str = "\
#include <stdlib.h>
#include <string.h>
#include \"queue.h\"

int queue_init(struct queue *queue, size_t room)
{
    memset(queue, 0, sizeof *queue);
    queue->items = calloc(room, sizeof *queue->items);
    queue->room = queue->items ? room : 0;
    return queue->items ? 0 : -1;
}

int queue_put(struct queue *queue, int item)
{
    if (queue->length == queue->room)
        return -1;
    queue->items[(queue->first + queue->length++) % queue->room] = item;
    return 0;
}

int queue_get(struct queue *queue, int *item)
{
    if (!queue->length)
        return -1;
    *item = queue->items[queue->first];
    queue->first = (queue->first + 1) % queue->room;
    queue->length--;
    return 0;
}

void queue_free(struct queue *queue)
{
    free(queue->items);
}
";

const COUNT_C: &str = "\
#include <ctype.h>
#include <stdio.h>
#include \"queue.h\"

int main(void)
{
    struct queue queue;
    int c, letters = 0, words = 0, inside = 0;

    if (queue_init(&queue, 64))
        return 1;
    while ((c = getchar()) != EOF) {
        if (queue_put(&queue, c))
            while (!queue_get(&queue, &c))
                letters += !!isalpha(c);
        words += isspace(c) ? 0 : !inside;
        inside = !isspace(c);
    }
    printf(\"%d letters, %d words\\n\", letters, words);
    queue_free(&queue);
    return 0;
}
";

const MAKEFILE: &str = "\
OBJECTS = count.o queue.o

count: $(OBJECTS)
\tcc -o count $(OBJECTS)

count.o: count.c queue.h
\tcc -c count.c

queue.o: queue.c queue.h
\tcc -c queue.c

clean:
\trm -f count $(OBJECTS)
";

/// Fills the existing, empty directory `home`.
///
/// # Errors
/// A file cannot be written.
pub fn populate(home: &Path, seed: u64) -> io::Result<()> {
    let mut random = Random::seeded(seed);
    for directory in ["text", "src", "doc", "notes", "tmp"] {
        fs::create_dir(home.join(directory))?;
    }
    for number in 1..=4 {
        let name = format!("text/chapter{number}");
        fs::write(home.join(name), prose(&mut random, 200))?;
    }
    fs::write(home.join("text/table"), table(&mut random))?;
    fs::write(home.join("src/queue.h"), QUEUE_H)?;
    fs::write(home.join("src/queue.c"), QUEUE_C)?;
    fs::write(home.join("src/count.c"), COUNT_C)?;
    fs::write(home.join("src/Makefile"), MAKEFILE)?;
    fs::write(home.join("doc/queue.3"), manual(&mut random))?;
    for year in 1..=4 {
        for month in 1..=3 {
            let directory = home.join(format!("notes/year{year}/month{month}"));
            fs::create_dir_all(&directory)?;
            for note in 1..=4 {
                fs::write(directory.join(format!("note{note}")), prose(&mut random, 8))?;
            }
        }
    }
    Ok(())
}

/// Lines of 10 words. Every line of `WORDS` length holds each word about once.
fn prose(random: &mut Random, lines: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let errors: Vec<&str> = ERRORS.split_whitespace().collect();
    let mut text = String::new();
    for _ in 0..lines {
        for place in 0..10 {
            let word = match random.below(100) {
                0 => errors[random.below(errors.len())],
                _ => words[random.below(words.len())],
            };
            let _ = write!(text, "{}{word}", if place == 0 { "" } else { " " });
        }
        text.push('\n');
    }
    text
}

fn table(random: &mut Random) -> String {
    let mut text = String::new();
    for row in 0..120 {
        let _ = writeln!(
            text,
            "{row}\t{}\t{}",
            random.below(1000),
            random.below(1000)
        );
    }
    text
}

fn manual(random: &mut Random) -> String {
    let mut text = String::from(
        ".TH QUEUE 3\n.SH NAME\nqueue \\- a queue of numbers\n.SH SYNOPSIS\n.nf\n\
         int queue_put(struct queue *queue, int item);\n.fi\n",
    );
    for section in ["DESCRIPTION", "RETURN VALUE", "NOTES", "EXAMPLE"] {
        let _ = write!(
            text,
            ".SH {section}\n{}.PP\n{}",
            prose(random, 12),
            prose(random, 6)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn directories_are_alike_and_hold_the_words_that_scripts_look_for() {
        let scratch = Scratch::new(&std::env::temp_dir(), "sdet-home-test").expect("made");
        let homes = ["a", "b"].map(|name| scratch.path().join(name));
        for home in &homes {
            fs::create_dir(home).expect("made");
            populate(home, 1).expect("populated");
        }
        let read = |home: &Path, name: &str| fs::read_to_string(home.join(name)).expect(name);
        for name in ["text/chapter1", "text/table", "notes/year4/month3/note4"] {
            assert_eq!(read(&homes[0], name), read(&homes[1], name));
        }
        let chapter = read(&homes[0], "text/chapter1");
        for word in ["river", "mountain", "stone"] {
            assert!(chapter.contains(word), "{word}");
        }
        assert!(ERRORS.split_whitespace().any(|word| chapter.contains(word)));
    }
}
