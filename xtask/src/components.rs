//! A list of the components of the command, in the format of CycloneDX 1.5, for those who must know
//! what is in a binary. It is made of what cargo resolved, so that it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// The package that is released as a program.
const PROGRAM: &str = "uext4-cli";
/// The platform of the released binaries. Both architectures have the same components.
const PLATFORM: &str = "x86_64-unknown-linux-musl";

/// Runs cargo and returns the list.
///
/// # Errors
/// Cargo fails, or prints what it does not document.
pub fn list(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", PLATFORM])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !metadata.status.success() {
        let said = String::from_utf8_lossy(&metadata.stderr);
        return Err(format!("cargo metadata: {said}"));
    }
    let metadata = serde_json::from_slice(&metadata.stdout);
    let metadata: Value = metadata.map_err(|error| format!("cargo metadata: {error}"))?;
    of(&metadata).ok_or_else(|| format!("cargo metadata: no package {PROGRAM}"))
}

/// The list from the output of `cargo metadata`.
fn of(metadata: &Value) -> Option<Value> {
    let packages = metadata["packages"].as_array()?;
    let by_id: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let deps: BTreeMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, &node["deps"])))
        .collect();
    let (&program, of_program) = by_id.iter().find(|(_, p)| p["name"] == PROGRAM)?;
    let mut seen = BTreeSet::from([program]);
    let mut to_visit = vec![program];
    while let Some(id) = to_visit.pop() {
        for dep in deps.get(id).and_then(|deps| deps.as_array())? {
            let kinds = dep["dep_kinds"].as_array()?;
            // Not what only tests or build scripts use.
            let is_linked = kinds.iter().any(|kind| kind["kind"].is_null());
            let of = dep["pkg"].as_str()?;
            if is_linked && seen.insert(of) {
                to_visit.push(of);
            }
        }
    }
    seen.remove(program);
    let mut components: Vec<Value> = seen.iter().map(|id| component(by_id[id])).collect();
    components.sort_by_key(|component| component["purl"].to_string());
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "uext4",
            "version": of_program["version"],
            "licenses": [{ "expression": of_program["license"] }],
        }},
        "components": components,
    }))
}

fn component(package: &Value) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    let mut component = json!({
        "type": "library",
        "purl": format!("pkg:cargo/{name}@{version}"),
        "name": name,
        "version": version,
    });
    // A few old packages write a slash for OR.
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_linked_components_only() {
        let list = list(&crate::workspace_root()).unwrap();
        let components = list["components"].as_array().unwrap();
        let has = |name: &str| components.iter().any(|component| component["name"] == name);
        assert!(has("uext4") && has("clap") && has("uext4-ondisk"));
        assert!(!has("uext4-cli") && !has("proptest") && !has("uext4-testkit"));
        for component in components {
            assert!(component["licenses"].is_array(), "{component}");
        }
    }
}
