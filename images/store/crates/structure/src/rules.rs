//! What must not be: modules that need each other in a circle, and types whose methods are all over the crate.

use std::collections::BTreeSet;
use std::path::Path;

use crate::modules::{Crate, Module};

/// How often a name may stand for another one before its end is found.
const MAX_HOPS: usize = 64;
/// A glob counts as so many: each may lead to several others.
const GLOB_HOPS: usize = 16;

impl Crate {
    /// All of them, a line each.
    pub fn findings(&self) -> Vec<String> {
        let circles = self.circles().into_iter();
        let circles = circles.map(|circle| format!("circle: {}", circle.join(", ")));
        let layers = self.circles_of_folders().into_iter();
        let circles =
            circles.chain(layers.map(|circle| format!("circle of folders: {}", circle.join(", "))));
        let scattered = self.scattered().into_iter();
        let scattered = scattered.map(|(of, at)| format!("methods of {of} in {at}"));
        let name = &self.name;
        let lines = circles.chain(scattered);
        lines.map(|line| format!("{name}: {line}")).collect()
    }

    /// Groups of modules each of which needs all others of its group, if only through others.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let needs = self.needs();
        self.find_circles(&needs)
            .into_iter()
            .map(|circle| circle.into_iter().map(|one| self.show(one)).collect())
            .collect()
    }

    /// Groups of modules below the root of the crate, each with all that is below it, each of which needs all others of its group. The root hands
    /// on names, and declares modules; it is in no circle.
    fn circles_of_folders(&self) -> Vec<Vec<String>> {
        let top_of = |at: usize| {
            let top = self.modules[at].path.first()?;
            self.modules[0].children.get(top).copied()
        };
        let mut needs = vec![BTreeSet::new(); self.modules.len()];
        for (at, needed) in self.needs().iter().enumerate() {
            let tops = needed.iter().filter_map(|&other| top_of(other));
            if let Some(top) = top_of(at) {
                needs[top].extend(tops.filter(|&other| other != top));
            }
        }
        let circles = self.find_circles(&needs).into_iter();
        let shown = circles.map(|circle| circle.into_iter().map(|one| self.show(one)).collect());
        shown.collect()
    }

    fn needs(&self) -> Vec<BTreeSet<usize>> {
        let all = 0..self.modules.len();
        all.map(|at| self.needed_by(at)).collect()
    }

    fn find_circles(&self, needs: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..needs.len()).map(|at| reach(needs, at)).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for at in 0..needs.len() {
            let both = |other: &usize| reached[*other].contains(&at);
            let circle: Vec<usize> = reached[at].iter().copied().filter(both).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles
    }

    /// Methods outside the folder of their type: the type, and where they are.
    pub fn scattered(&self) -> Vec<(String, String)> {
        let mut found = BTreeSet::new();
        for (at, module) in self.modules.iter().enumerate() {
            for of in &module.methods_of {
                let Some(home) = self.resolve(at, of, 0) else {
                    continue;
                };
                if !is_at_home(&self.modules[home], module) {
                    let name = of.last().cloned().unwrap_or_default();
                    found.insert((format!("{} of {}", name, self.show(home)), self.show(at)));
                }
            }
        }
        found.into_iter().collect()
    }

    fn show(&self, at: usize) -> String {
        match &self.modules[at].path[..] {
            [] => self.name.clone(),
            path => path.join("::"),
        }
    }

    /// Modules that this one needs.
    pub fn needed_by(&self, at: usize) -> BTreeSet<usize> {
        let needs = self.modules[at].needs.iter();
        let mut needed: BTreeSet<usize> =
            needs.filter_map(|path| self.resolve(at, path, 0)).collect();
        needed.remove(&at);
        needed
    }

    /// The module that defines what `path` names in module `at`; `None` if that is no module of this crate.
    fn resolve(&self, at: usize, path: &[String], hops: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let module = &self.modules[at];
        match first.as_str() {
            "crate" => self.find(0, rest, hops),
            "self" => self.find(at, rest, hops),
            "super" => self.find(self.parent(at)?, rest, hops),
            _ if module.children.contains_key(first) || module.aliases.contains_key(first) => {
                self.find(at, path, hops)
            }
            _ if path.len() == 1 && module.items.contains(first) => Some(at),
            _ if !module.globs.is_empty() => self.find(at, path, hops),
            _ => None,
        }
    }

    /// What a path means that begins in a module.
    fn find(&self, at: usize, path: &[String], hops: usize) -> Option<usize> {
        if hops >= MAX_HOPS {
            return None;
        }
        let module = &self.modules[at];
        let Some((first, rest)) = path.split_first() else {
            return Some(at);
        };
        if first == "super" {
            return self.find(self.parent(at)?, rest, hops);
        }
        if let Some(&child) = module.children.get(first) {
            return self.find(child, rest, hops);
        }
        if module.items.contains(first) {
            return Some(at);
        }
        if let Some(alias) = module.aliases.get(first) {
            let whole = [&alias[..], rest].concat();
            return match alias.len() == 1 && alias[0] == *first {
                true => None, // another crate
                false => self.resolve(at, &whole, hops + 1),
            };
        }
        let mut globs = module.globs.iter();
        globs.find_map(|glob| {
            let of = self.resolve(at, glob, hops + GLOB_HOPS)?;
            let found = self.find(of, path, hops + GLOB_HOPS);
            found.filter(|&found| found != at)
        })
    }

    fn parent(&self, at: usize) -> Option<usize> {
        let is_it = |module: &Module| module.children.values().any(|&child| child == at);
        self.modules.iter().position(is_it)
    }
}

fn reach(needs: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for &next in &needs[at] {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// In the same folder as the type, or below its module. All files of a crate are below its root, so there the folder alone counts.
fn is_at_home(home: &Module, module: &Module) -> bool {
    let folder = |of: &Module| of.file.parent().map(Path::to_owned);
    let is_below = !home.path.is_empty() && module.path.starts_with(&home.path);
    is_below || folder(home) == folder(module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What is found in a crate of these files.
    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("sample");
        for (name, text) in files {
            let file = folder.join("src").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Crate::read(&folder).unwrap().findings()
    }

    #[test]
    fn layers_are_no_circle() {
        let found = findings(&[
            ("lib.rs", "mod low; mod high; pub use high::High;"),
            ("low.rs", "pub struct Low;"),
            ("high.rs", "use crate::low::Low; pub struct High(Low);"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_circle_is_found_through_others_and_through_names_that_are_handed_on() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::*;"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "pub struct B(crate::c::C);"),
            ("c.rs", "pub struct C; fn f() { let _ = super::A; }"),
        ]);
        let all = [
            "sample: circle: a, b, c",
            "sample: circle of folders: a, b, c",
        ];
        assert_eq!(found, all);
    }

    #[test]
    fn a_module_and_its_parent_are_a_circle_too() {
        let found = findings(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; use b::B; pub struct A(B);"),
            ("a/b.rs", "use super::A; pub struct B; fn f(_: A) {}"),
        ]);
        assert_eq!(found, ["sample: circle: a, a::b"]);
    }

    #[test]
    fn tests_other_crates_and_visibilities_do_not_count() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "pub(in crate::b) struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; use std::fmt; pub struct B(A);"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn methods_elsewhere_than_their_type_are_found() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "mod d; pub struct A;"),
            ("a/d.rs", "use super::A; impl A { fn below() {} }"),
            ("b.rs", "use crate::a::A; impl A { fn beside() {} }"),
            (
                "c/mod.rs",
                "use crate::a::A; impl A { fn far() {} } impl Copy for A {}",
            ),
        ]);
        assert_eq!(found, ["sample: methods of A of a in c"]);
    }

    #[test]
    fn what_a_module_hands_on_and_uses_itself_counts_and_so_do_words_in_macros() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "pub use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "pub struct B; fn f() { assert!(crate::a::A::is()); }",
            ),
            ("c.rs", "pub use crate::d::D; pub struct C;"),
            ("d.rs", "pub struct D(crate::c::C);"),
        ]);
        assert_eq!(
            found,
            ["sample: circle: a, b", "sample: circle of folders: a, b"]
        );
    }

    #[test]
    fn folders_are_in_a_circle_though_no_modules_are() {
        let found = findings(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod low; mod high;"),
            ("a/low.rs", "pub struct Low;"),
            ("a/high.rs", "pub struct High(crate::b::B);"),
            ("b.rs", "pub struct B(crate::a::low::Low);"),
        ]);
        assert_eq!(found, ["sample: circle of folders: a, b"]);
    }

    #[test]
    fn methods_are_found_through_globs() {
        let found = findings(&[
            ("lib.rs", "mod a; mod c;"),
            ("a.rs", "pub struct A;"),
            ("c/mod.rs", "use crate::a::*; impl A { fn far() {} }"),
        ]);
        assert_eq!(found, ["sample: methods of A of a in c"]);
    }
}
