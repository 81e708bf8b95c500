//! The modules of a crate, read from its source files: what each defines, imports, and gives methods to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemImpl, ItemMod, Type, UseTree, Visibility};

/// A path in a program, as it is written.
pub type Names = Vec<String>;

/// A file, or a part of one between the braces of a `mod`.
#[derive(Debug, Default)]
pub struct Module {
    /// From the root of the crate, which itself is empty.
    pub path: Names,
    pub file: PathBuf,
    pub children: BTreeMap<String, usize>,
    /// Names of what is defined here, modules left out.
    pub items: BTreeSet<String>,
    /// What a name that was imported stands for.
    pub aliases: BTreeMap<String, Names>,
    /// Modules all of whose names were imported.
    pub globs: Vec<Names>,
    /// Paths that the code of this module needs: its imports, unless it only hands them on, and paths of more than one name.
    pub needs: Vec<Names>,
    /// Types that get methods here, traits left out.
    pub methods_of: Vec<Names>,
    /// Names that are handed on to others, and single names that the code uses: it may use what it hands on.
    handed_on: Vec<String>,
    used: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Crate {
    pub name: String,
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads a crate whose `Cargo.toml` is in `folder`. Tests are left out.
    ///
    /// # Errors
    /// A file cannot be read, or is no Rust.
    pub fn read(folder: &Path) -> Result<Crate, String> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut read = Crate {
            name: name.into_owned(),
            modules: Vec::new(),
        };
        let root = folder.join("src/lib.rs");
        read.add_file(Vec::new(), &root, &folder.join("src"))?;
        Ok(read)
    }

    fn add_file(&mut self, path: Names, file: &Path, folder: &Path) -> Result<usize, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| told(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| told(&error))?;
        self.add_items(path, file, folder, parsed.items)
    }

    fn add_items(
        &mut self,
        path: Names,
        file: &Path,
        folder: &Path,
        items: Vec<Item>,
    ) -> Result<usize, String> {
        let at = self.modules.len();
        self.modules.push(Module {
            path: path.clone(),
            file: file.to_owned(),
            ..Module::default()
        });
        for item in items {
            if let Item::Mod(inner) = item {
                if !is_for_tests(&inner.attrs) {
                    let name = inner.ident.to_string();
                    let child = self.add_child(&path, file, folder, inner)?;
                    self.modules[at].children.insert(name, child);
                }
            } else {
                self.modules[at].add(&item);
            }
        }
        self.modules[at].need_what_is_handed_on();
        Ok(at)
    }

    fn add_child(
        &mut self,
        path: &[String],
        file: &Path,
        folder: &Path,
        module: ItemMod,
    ) -> Result<usize, String> {
        let name = module.ident.to_string();
        let path = [path, std::slice::from_ref(&name)].concat();
        let inside = folder.join(&name);
        if let Some((_, items)) = module.content {
            return self.add_items(path, file, &inside, items);
        }
        let beside = folder.join(format!("{name}.rs"));
        match beside.exists() {
            true => self.add_file(path, &beside, &inside),
            false => self.add_file(path, &inside.join("mod.rs"), &inside),
        }
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        if let Item::Use(import) = item {
            let is_handed_on = !matches!(import.vis, Visibility::Inherited);
            return self.import(&mut Vec::new(), &import.tree, is_handed_on);
        }
        if let Item::Impl(ItemImpl {
            trait_: None,
            self_ty,
            ..
        }) = item
            && let Type::Path(of) = &**self_ty
        {
            self.methods_of.push(names(&of.path));
        }
        self.items.extend(name_of(item));
        self.visit_item(item);
    }

    fn need_what_is_handed_on(&mut self) {
        for name in &self.handed_on {
            if self.used.contains(name) {
                self.needs.extend(self.aliases.get(name).cloned());
            }
        }
    }

    fn import(&mut self, before: &mut Names, tree: &UseTree, is_handed_on: bool) {
        let (path, name) = match tree {
            UseTree::Path(more) => {
                before.push(more.ident.to_string());
                self.import(before, &more.tree, is_handed_on);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                for one in &group.items {
                    self.import(before, one, is_handed_on);
                }
                return;
            }
            UseTree::Glob(_) => {
                self.globs.push(before.clone());
                if !is_handed_on {
                    self.needs.push(before.clone());
                }
                return;
            }
            UseTree::Name(one) if one.ident == "self" => {
                (before.clone(), before.last().cloned().unwrap_or_default())
            }
            UseTree::Name(one) => {
                let name = one.ident.to_string();
                ([&before[..], std::slice::from_ref(&name)].concat(), name)
            }
            UseTree::Rename(one) => (
                [&before[..], &[one.ident.to_string()]].concat(),
                one.rename.to_string(),
            ),
        };
        match is_handed_on {
            true => self.handed_on.push(name.clone()),
            false => self.needs.push(path.clone()),
        }
        self.aliases.insert(name, path);
    }
}

impl Visit<'_> for Module {
    fn visit_path(&mut self, path: &syn::Path) {
        match path.get_ident() {
            Some(name) => {
                self.used.insert(name.to_string());
            }
            None => self.needs.push(names(path)),
        }
        visit::visit_path(self, path);
    }

    /// Inside of a macro nobody says which of its words are paths: all that could be are.
    fn visit_macro(&mut self, called: &syn::Macro) {
        let text = called.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        for word in words {
            let path: Names = word.split("::").map(str::to_owned).collect();
            match &path[..] {
                [name] => {
                    self.used.insert(name.clone());
                }
                _ => self.needs.push(path),
            }
        }
        visit::visit_macro(self, called);
    }

    fn visit_item_use(&mut self, import: &syn::ItemUse) {
        self.import(&mut Vec::new(), &import.tree, false);
    }

    fn visit_item_mod(&mut self, _: &ItemMod) {}

    /// `pub(in crate::movement)` needs nothing of what it names.
    fn visit_visibility(&mut self, _: &Visibility) {}
}

fn names(path: &syn::Path) -> Names {
    let segments = path.segments.iter();
    segments.map(|one| one.ident.to_string()).collect()
}

/// `#[cfg(test)]`, and whatever else is only there with it.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut is_it = false;
        if attribute.path().is_ident("cfg") {
            let looked = attribute.parse_nested_meta(|meta| {
                is_it |= meta.path.is_ident("test");
                Ok(())
            });
            is_it &= looked.is_ok();
        }
        is_it
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(one) => &one.attrs,
        Item::Enum(one) => &one.attrs,
        Item::Fn(one) => &one.attrs,
        Item::Impl(one) => &one.attrs,
        Item::Macro(one) => &one.attrs,
        Item::Static(one) => &one.attrs,
        Item::Struct(one) => &one.attrs,
        Item::Trait(one) => &one.attrs,
        Item::Type(one) => &one.attrs,
        Item::Use(one) => &one.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(one) => &one.ident,
        Item::Enum(one) => &one.ident,
        Item::Fn(one) => &one.sig.ident,
        Item::Static(one) => &one.ident,
        Item::Struct(one) => &one.ident,
        Item::Trait(one) => &one.ident,
        Item::Type(one) => &one.ident,
        Item::Macro(one) => one.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}
