//! What a candidate is at the moment, for everybody who asks.

use tokio::sync::watch;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It waits until nobody else leads.
    #[default]
    Standby,
    /// It was elected, and reads the state.
    TakingOver,
    Leading,
    /// It was elected and must not lead; people have to do something.
    Refused(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    /// Who leads, as far as this candidate knows.
    pub holder: Option<String>,
    /// Why the lease cannot be read or written, or the state not be loaded.
    pub trouble: Option<String>,
}

pub type Sender = watch::Sender<Standing>;
pub type Receiver = watch::Receiver<Standing>;

impl Standing {
    /// Nothing where it leads; else why it answers nothing.
    pub fn why_not(&self) -> Option<String> {
        let mut text = match (&self.role, &self.holder) {
            (Role::Leading, _) => return None,
            (Role::Refused(why), _) => return Some(why.clone()),
            (Role::TakingOver, _) => {
                "this coordinator was just elected, and reads the store's state".to_owned()
            }
            (Role::Standby, Some(holder)) => {
                format!("this coordinator is a standby; {holder} leads")
            }
            (Role::Standby, None) => {
                "this coordinator is a standby, and does not know yet who leads".to_owned()
            }
        };
        if let Some(trouble) = &self.trouble {
            text = format!("{text}; {trouble}");
        }
        Some(text)
    }
}
