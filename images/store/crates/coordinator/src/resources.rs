//! Machines with state that outlives the process and that nothing else depends on: each is one line here, and a kind of record in `records.rs`.

use crate::events::Events;
use crate::resource::Resource;

macro_rules! resources {
    ($($name:ident: $machine:ty,)+) => {
        #[derive(Debug, Default)]
        pub(crate) struct Resources {
            $(pub $name: $machine,)+
        }

        impl Resources {
            pub fn all(&self) -> impl Iterator<Item = &dyn Resource> {
                [$(&self.$name as &dyn Resource,)+].into_iter()
            }

            pub fn all_mut(&mut self) -> impl Iterator<Item = &mut dyn Resource> {
                [$(&mut self.$name as &mut dyn Resource,)+].into_iter()
            }
        }
    };
}

resources! {
    events: Events,
}
