//! OCI image layouts: a directory, or a tar archive of one.
//!
//! ```text
//! oci-layout            {"imageLayoutVersion": "1.0.0"}
//! index.json            the manifests, with names and platforms
//! blobs/sha256/<hex>    manifests, configurations, layers
//! ```

use std::path::Path;
use std::sync::Arc;

use oci_spec::image::{ImageIndex, OciLayout};

use super::ContainerImage;
use super::error::{Fault, Part};
use super::index::choose;
use super::manifest::{self, DocumentKind};
use super::platform::Platform;
use super::reference::Select;
use super::store::{DOCUMENT_MAX, Documents, Files, parse};

/// The only version of layouts that there is.
const LAYOUT_VERSION: &str = "1.0.0";

/// Opens an image of a layout.
///
/// # Errors
/// See [`Fault`].
pub(super) fn open(
    path: &Path,
    select: &Select,
    platform: Option<&Platform>,
    image: &Arc<str>,
) -> Result<ContainerImage, Fault> {
    let files = Files::open(path)?;
    check_marker(&files)?;
    let part = Part::Index;
    let index = files
        .find(&part, "index.json")?
        .ok_or_else(|| Fault::Missing {
            part: part.clone(),
            name: "index.json".to_owned(),
        })?;
    let bytes = index.read_all(&part, DOCUMENT_MAX)?;
    let index: ImageIndex = parse(&part, &bytes)?;
    let media_type = index
        .media_type()
        .as_ref()
        .map_or(manifest::IMAGE_INDEX, |m| m.as_ref());
    DocumentKind::Index.check(&part, media_type, &bytes)?;
    let documents = Documents::of(&files);
    let chosen = choose(&documents, &part, &index, select, platform)?;
    manifest::load(&documents, chosen, image)
}

fn check_marker(files: &Files) -> Result<(), Fault> {
    let part = Part::LayoutMarker;
    let Some(marker) = files.find(&part, "oci-layout")? else {
        let what = match files.find(&Part::ArchiveManifest, "manifest.json") {
            Ok(Some(_)) if matches!(files, Files::Directory(_)) => {
                "not an OCI image layout but a directory of skopeo's: name it dir:"
            }
            Ok(Some(_)) => "not an OCI image layout but a docker-archive: name it docker-archive:",
            _ => "not an OCI image layout: there is no file oci-layout",
        };
        let what = what.to_owned();
        return Err(Fault::Format { what });
    };
    let marker: OciLayout = parse(&part, &marker.read_all(&part, DOCUMENT_MAX)?)?;
    match marker.image_layout_version().as_str() {
        LAYOUT_VERSION => Ok(()),
        other => {
            let why = format!("imageLayoutVersion {other:?}, only {LAYOUT_VERSION} is supported");
            Err(Fault::Document { part, why })
        }
    }
}
