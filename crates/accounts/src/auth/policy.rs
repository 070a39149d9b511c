//! The policy: what a caller may do. Every permission check ends here.

use paddlecloud_core::access::Scope;
use paddlecloud_core::names::UserName;

use super::Caller;

/// An action that requires permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Call a route of this scope.
    Call(Scope),
    /// Use something of this user: a job, its name, a link.
    UseOf(&'a UserName),
    /// Stop the server, check its storage, see the machine's folders, write to the public space.
    Administer,
}

/// Whether the caller may perform this action.
pub fn allows(caller: &Caller, action: Action<'_>) -> bool {
    match action {
        Action::Call(scope) => caller.scopes.contains(scope),
        Action::UseOf(owner) => *owner == caller.user || allows(caller, Action::Administer),
        Action::Administer => caller.scopes.contains(Scope::Admin),
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::access::Scopes;

    use super::*;

    #[test]
    fn users_access_their_own_resources_and_administrators_all() {
        let caller = |scopes| Caller {
            user: "ada".parse().unwrap(),
            scopes,
        };
        let (own, other) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let may = |scopes: Scopes, action| allows(&caller(scopes), action);
        assert!(may(Scopes::user(), Action::UseOf(&own)));
        assert!(!may(Scopes::user(), Action::UseOf(&other)));
        assert!(!may(Scopes::user(), Action::Administer));
        assert!(may(Scopes::all(), Action::UseOf(&other)));
        assert!(may(Scopes::all(), Action::Administer));
    }

    #[test]
    fn a_route_needs_its_own_scope() {
        let caller = Caller {
            user: "ada".parse().unwrap(),
            scopes: "admin,files".parse().unwrap(),
        };
        let allowed: Vec<Scope> = Scope::ALL
            .into_iter()
            .filter(|scope| allows(&caller, Action::Call(*scope)))
            .collect();
        assert_eq!(allowed, [Scope::Files, Scope::Admin]);
    }
}
