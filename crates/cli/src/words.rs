//! Lines of a script, cut into words as a shell would, without its expansions.

/// The words of a line. A backslash takes the next byte as it is; nothing is special between single
/// quotes, and between double quotes only the backslash before `"` and itself. `#` at the start of a
/// word begins a comment.
///
/// # Errors
/// What is missing.
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => words.extend(word.take()),
            b'#' if word.is_none() => break,
            b'\\' => {
                let next = bytes.next().ok_or("nothing follows the backslash")?;
                word.get_or_insert_default().push(next);
            }
            b'\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or("a single quote is missing")? {
                        b'\'' => break,
                        byte => word.push(byte),
                    }
                }
            }
            b'"' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or("a double quote is missing")? {
                        b'"' => break,
                        b'\\' => match bytes.next().ok_or("a double quote is missing")? {
                            byte @ (b'"' | b'\\') => word.push(byte),
                            byte => word.extend([b'\\', byte]),
                        },
                        byte => word.push(byte),
                    }
                }
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_like_a_shell_would() {
        let cut = |line: &str| {
            let words = words(line.as_bytes()).unwrap();
            let text = |word| String::from_utf8(word).unwrap();
            words.into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(cut("mkdir  -p\t/a b"), ["mkdir", "-p", "/a", "b"]);
        assert_eq!(cut(r#"'a b' "c \" d" e\ f"#), ["a b", "c \" d", "e f"]);
        assert_eq!(cut(r#"a'b'"c"d '' "\n""#), ["abcd", "", r"\n"]);
        assert_eq!(cut("# all"), [""; 0]);
        assert_eq!(cut("a#b # c"), ["a#b"]);
        for bad in ["'a", "\"a", "a\\"] {
            assert!(words(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
