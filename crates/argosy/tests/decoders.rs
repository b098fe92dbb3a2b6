//! Every target of `fuzz/` with inputs that are made up from a fixed seed: random bytes, and what encoders have written
//! with some of it changed. None may make a decoder panic.

// Only tests can leave checksums out.
#![cfg(debug_assertions)]

use std::panic::catch_unwind;

#[path = "../../../fuzz/targets/mod.rs"]
mod targets;

use targets::{ALL, Target};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let number = self.next() % (bound.max(1) as u64);
        usize::try_from(number).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of many lengths, mostly short ones.
    fn len(&mut self) -> usize {
        let most = [4, 40, 400][self.below(3)];
        self.below(most)
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.len()).map(|_| self.byte()).collect()
    }

    /// A place in `len` bytes: often near either end, where headers and footers are.
    fn place(&mut self, len: usize) -> usize {
        match self.below(3) {
            0 => self.below(len.min(200)),
            1 => len.saturating_sub(1 + self.below(len.min(200))),
            _ => self.below(len),
        }
    }

    /// A number that is likelier than most to be near a bound.
    fn number(&mut self) -> u64 {
        let power = 1u64 << self.below(64);
        match self.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => power.wrapping_sub(1),
            3 => power,
            _ => self.next(),
        }
    }
}

/// What `bytes` become by one change.
fn change(bytes: &mut Vec<u8>, random: &mut Random, other: &[u8]) {
    let at = random.place(bytes.len());
    match random.below(8) {
        0 => {
            let bit = random.below(8);
            bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << bit);
        }
        1 => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte = random.byte()),
        2 => {
            let number = random.number().to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)];
            let over = bytes.iter_mut().skip(at).take(width);
            over.zip(number).for_each(|(byte, new)| *byte = new);
        }
        3 => bytes.truncate(at),
        4 => {
            let to = (at + random.len()).min(bytes.len());
            bytes.drain(at..to);
        }
        5 => {
            let new = random.bytes();
            bytes.splice(at..at, new);
        }
        6 => {
            // A piece of itself, elsewhere.
            let from = random.place(bytes.len());
            let to = (from + random.len()).min(bytes.len());
            let piece = bytes[from..to].to_vec();
            let end = (at + piece.len()).min(bytes.len());
            bytes.splice(at..end, piece);
        }
        _ => {
            let from = random.place(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

/// Made up from `seeds`: mostly one of them with a few changes, behind the byte that chooses its decoder.
fn made_up(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let seed = &seeds[random.below(seeds.len())];
    let mut which = seed[0];
    if random.below(8) == 0 {
        which = random.byte();
    }
    let mut bytes = match random.below(6) {
        0 => random.bytes(),
        _ => seed[1..].to_vec(),
    };
    let other = &seeds[random.below(seeds.len())];
    for _ in 0..random.below(5) {
        change(&mut bytes, random, &other[1..]);
    }
    bytes.insert(0, which);
    bytes
}

/// Runs `target`; a panic tells of which bytes.
fn run(target: &Target, input: &[u8]) -> bool {
    catch_unwind(|| (target.run)(input)).unwrap_or_else(|_| {
        let shown = input[..input.len().min(4096)].escape_ascii();
        panic!("{}, {} bytes: b\"{shown}\"", target.name, input.len())
    })
}

/// How many inputs are made up, so that each target takes about as long.
fn rounds(target: &Target) -> usize {
    match target.name {
        "device" => 400,
        "levels" => 4_000,
        "edits" | "logs" | "sessions" => 20_000,
        _ => 40_000,
    }
}

#[test]
fn no_input_makes_a_decoder_panic() {
    argosy_base::checksum::leave_out();
    for target in &ALL {
        let seeds = (target.seeds)();
        for (at, seed) in seeds.iter().enumerate() {
            assert!(
                run(target, seed),
                "{}: nothing in seed {at}, of {}",
                target.name,
                seed[0]
            );
        }
        let (mut random, mut found) = (Random(1), 0);
        for _ in 0..rounds(target) {
            let input = made_up(&seeds, &mut random);
            found += usize::from(run(target, &input));
        }
        // So most of what is made up gets somewhere, and some of it is refused.
        let part = found * 100 / rounds(target);
        println!("{}: something was found in {part} of 100", target.name);
        assert!((10..=95).contains(&part), "{}: {part} of 100", target.name);
    }
}
