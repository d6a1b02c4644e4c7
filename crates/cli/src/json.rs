//! JSON, written straight into a byte buffer: fast enough for a line per file of a large image.
//!
//! `serde_json` writes values; objects and arrays are opened and closed by the caller, so that a
//! list of any length is never in memory as a whole, and commas come by themselves. Bytes that
//! are no UTF-8, or begin with `hex:`, become `"hex:…"`.

use std::io::{self, Write};

/// A JSON value under construction.
#[derive(Debug, Default)]
pub struct Json {
    bytes: Vec<u8>,
    /// The next value or key is the first of its object or array.
    first: bool,
}

impl Json {
    /// An empty buffer.
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(1024),
            first: true,
        }
    }

    /// Empties the buffer, keeping its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.first = true;
    }

    /// Empties the buffer in the middle of an array: the next value follows another.
    pub fn continue_array(&mut self) {
        self.bytes.clear();
        self.first = false;
    }

    /// What was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A line feed, as between the objects of a JSON-lines file; the next value is a first one.
    pub fn end_line(&mut self) {
        self.bytes.push(b'\n');
        self.first = true;
    }

    /// Closes the array that is all there is, and prints it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print_array(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.close_array();
        self.end_line();
        out.write_all(self.as_bytes())
    }

    fn comma(&mut self) {
        if !self.first {
            self.bytes.push(b',');
        }
        self.first = false;
    }

    fn open(&mut self, bracket: u8) {
        self.comma();
        self.bytes.push(bracket);
        self.first = true;
    }

    fn close(&mut self, bracket: u8) {
        self.bytes.push(bracket);
        self.first = false;
    }

    /// `{`
    pub fn open_object(&mut self) {
        self.open(b'{');
    }

    /// `}`
    pub fn close_object(&mut self) {
        self.close(b'}');
    }

    /// `[`
    pub fn open_array(&mut self) {
        self.open(b'[');
    }

    /// `]`
    pub fn close_array(&mut self) {
        self.close(b']');
    }

    /// `"key":`; the value comes next.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.comma();
        self.quoted(key);
        self.bytes.push(b':');
        self.first = true;
        self
    }

    /// The same for a key of bytes, which are `hex:…` where they are no UTF-8.
    pub fn key_text(&mut self, key: &[u8]) -> &mut Self {
        self.text(key);
        self.bytes.push(b':');
        self.first = true;
        self
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, value: &[u8]) {
        self.comma();
        self.bytes.extend_from_slice(value);
        self.first = false;
    }

    /// A number.
    pub fn number(&mut self, value: impl Into<i128>) {
        self.comma();
        let value: i128 = value.into();
        // OK to ignore: neither numbers nor strings fail, and neither does a buffer.
        _ = serde_json::to_writer(&mut self.bytes, &value);
    }

    /// A number with three decimals; what is no number becomes 0.
    pub fn decimal(&mut self, value: f64) {
        self.comma();
        let value = if value.is_finite() { value } else { 0.0 };
        self.bytes
            .extend_from_slice(format!("{value:.3}").as_bytes());
    }

    /// A number with as many decimals as it has; what is no number becomes 0.
    pub fn exactly(&mut self, value: f64) {
        self.comma();
        let value = if value.is_finite() { value } else { 0.0 };
        self.bytes.extend_from_slice(value.to_string().as_bytes());
    }

    /// A value that is in memory, such as `true`.
    pub fn value(&mut self, value: impl Into<serde_json::Value>) {
        self.comma();
        // OK to ignore: as in `number`.
        _ = serde_json::to_writer(&mut self.bytes, &value.into());
    }

    /// A string.
    pub fn string(&mut self, text: &str) {
        self.comma();
        self.quoted(text);
    }

    /// A string that is text if the bytes are UTF-8, else `hex:` and their digits; also for text
    /// that begins like that, so that it is not taken for other bytes.
    pub fn text(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.starts_with("hex:") => self.string(text),
            _ => {
                self.comma();
                self.bytes.extend_from_slice(b"\"hex:");
                push_hex(&mut self.bytes, bytes);
                self.bytes.push(b'"');
            }
        }
    }

    /// A string of lower-case hexadecimal digits.
    pub fn hex(&mut self, bytes: &[u8]) {
        self.comma();
        self.bytes.push(b'"');
        push_hex(&mut self.bytes, bytes);
        self.bytes.push(b'"');
    }

    fn quoted(&mut self, text: &str) {
        // OK to ignore: as in `number`.
        _ = serde_json::to_writer(&mut self.bytes, text);
    }
}

/// Appends two lower-case digits a byte.
fn push_hex(to: &mut Vec<u8>, bytes: &[u8]) {
    let start = to.len();
    to.resize(start + 2 * bytes.len(), 0);
    // OK to unwrap: there is room for exactly two digits a byte.
    hex::encode_to_slice(bytes, &mut to[start..]).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_reads_what_was_written() {
        let odd = "tab\t quote\" back\\ line\n bell\u{7} del\u{7f} ü 𝄞";
        let mut json = Json::new();
        json.open_object();
        json.key("text").text(odd.as_bytes());
        json.key("hex").text(b"a\xff");
        json.key("like hex").text(b"hex:61ff");
        json.key("numbers").open_array();
        for number in [0, -1, i128::from(u64::MAX), -(1 << 100)] {
            json.number(number);
        }
        json.close_array();
        json.key("empty").open_object();
        json.close_object();
        json.key("yes").value(true);
        json.close_object();
        let text = std::str::from_utf8(json.as_bytes()).unwrap();
        assert!(
            text.contains(
                r#""numbers":[0,-1,18446744073709551615,-1267650600228229401496703205376]"#
            )
        );
        let parsed: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(parsed["text"], odd);
        assert_eq!(parsed["hex"], "hex:61ff");
        assert_eq!(parsed["like hex"], "hex:6865783a36316666");
        assert!(parsed["empty"].as_object().unwrap().is_empty());
        assert_eq!(parsed["yes"], true);
    }
}
