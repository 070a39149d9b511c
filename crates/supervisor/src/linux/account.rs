//! Looks up system users by name, in every account source of this machine (files, LDAP, …).

use std::ffi::{CStr, CString};
use std::io;

use paddlecloud_worker::protocol::RunAs;

const FIRST_BUFFER: usize = 1024;
const FIRST_GROUPS: usize = 32;

/// The account of this name with all its groups, or `None` if the machine has no such account.
pub fn find_account(name: &str) -> io::Result<Option<RunAs>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let numbers = numbers_of(&name)?;
    Ok(numbers.map(|(uid, gid)| RunAs {
        uid,
        gid,
        groups: groups_of(&name, gid),
    }))
}

fn numbers_of(name: &CStr) -> io::Result<Option<(u32, u32)>> {
    let mut texts: Vec<libc::c_char> = vec![0; FIRST_BUFFER];
    loop {
        // SAFETY: every field of the C struct may be zero.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are valid for the call and the length is the buffer's own; only numbers are read from
        // the answer.
        let code = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                &raw mut entry,
                texts.as_mut_ptr(),
                texts.len(),
                &raw mut found,
            )
        };
        match code {
            libc::ERANGE => texts.resize(texts.len() * 2, 0),
            libc::EINTR => {}
            0 if !found.is_null() => return Ok(Some((entry.pw_uid, entry.pw_gid))),
            // Some sources report a missing account with errors of their own.
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

fn groups_of(name: &CStr, first: u32) -> Vec<u32> {
    let mut groups = vec![0; FIRST_GROUPS];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: the array has at least `count` elements.
        let code = unsafe { libc::getgrouplist(name.as_ptr(), first, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if code >= 0 {
            groups.truncate(count);
            return groups;
        }
        groups.resize(count.max(groups.len() * 2), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nonsense_is_not() {
        let root = find_account("root").unwrap().expect("every machine has root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        for nonsense in ["no such user", "", "with\0zero"] {
            assert_eq!(find_account(nonsense).unwrap(), None, "{nonsense:?}");
        }
    }
}
