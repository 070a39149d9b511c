//! What the answers of an API server mean.

use super::*;

fn refused(message: &str) -> CallError {
    CallError::Refused {
        code: 403,
        message: message.into(),
    }
}

#[test]
fn temporary_refusals_are_distinguished_from_permanent_ones() {
    for message in [
        "pods \"a\" is forbidden: exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0",
        "pods \"a\" is forbidden: status unknown for quota: full, resources: pods",
        "admission webhook \"policy.example.org\" denied the request: not today",
        "Internal error occurred: failed calling webhook \"w\": context deadline exceeded",
    ] {
        assert!(refused(message).may_succeed_later(), "{message}");
    }
    for message in [
        "pods is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"pods\"",
        "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
    ] {
        assert!(!refused(message).may_succeed_later(), "{message}");
    }
}

#[test]
fn only_an_unavailable_api_server_is_waited_for() {
    let answered = |code: u16| {
        let status = kube::core::Status::failure("words", "Reason").with_code(code);
        CallError::from(kube::Error::Api(status.boxed()))
    };
    for code in [401, 429, 503, 504] {
        let error = answered(code);
        assert!(error.is_undecided() && error.may_succeed_later(), "{code}");
    }
    let broken = answered(500);
    assert!(broken.is_undecided() && !broken.may_succeed_later());
    let unreadable = serde_json::from_str::<u8>("no").unwrap_err();
    let unreadable = CallError::from(kube::Error::SerdeError(unreadable));
    assert!(!unreadable.may_succeed_later());
    let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert!(CallError::from(kube::Error::Service(away.into())).may_succeed_later());
    assert!(!answered(422).is_undecided());
    let words = answered(401).to_string();
    let expected = "this server has no valid credentials for the cluster's API server: words";
    assert_eq!(words, expected);
}
