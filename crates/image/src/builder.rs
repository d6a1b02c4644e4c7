//! Building an image from several sources.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::build::{Report, run};
use crate::chunks::Check;
use crate::error::Error;
use crate::oci::{ContainerImage, OpenOptions, Reference, Verified, Verifier};
use crate::options::BuildOptions;
use crate::output::Output;
use crate::progress::Progress;
use crate::source::{ArchiveKind, Input, Reader, Source};

/// An image of several sources, each above those before it.
///
/// A directory of a later source is merged with the one of an earlier source, whose entries stay
/// and whose attributes do not; anything else of a later source replaces what an earlier one has
/// at its path, with all below that. Archives are read once, in the order they were added, while
/// the image is written; see [`Builder::build`].
///
/// ```no_run
/// use uext4_image::{BuildOptions, Builder, Source};
///
/// let mut builder = Builder::new(BuildOptions::default());
/// builder.source(Source::Directory("rootfs".into()));
/// builder.archive("release.tar.zst", std::fs::File::open("release.tar.zst").unwrap());
/// let report = builder.build("root.img".as_ref(), &()).unwrap();
/// println!("{} bytes", report.image_bytes);
/// ```
pub struct Builder {
    options: BuildOptions,
    inputs: Vec<Input>,
}

impl Builder {
    /// An image without sources: an empty file system.
    pub fn new(options: BuildOptions) -> Self {
        Self {
            options,
            inputs: Vec::new(),
        }
    }

    /// Adds a source.
    pub fn source(&mut self, source: Source) -> &mut Self {
        self.inputs.push(Input::Source(source));
        self
    }

    /// Adds a tar archive, plain or compressed, that is read from `input`; `name` is how errors
    /// call it.
    pub fn archive(
        &mut self,
        name: impl Into<PathBuf>,
        input: impl Read + Send + 'static,
    ) -> &mut Self {
        self.reader(name.into(), Box::new(input), ArchiveKind::Files)
    }

    /// As [`Builder::archive`], for a layer of a container image: its whiteouts hide what the
    /// sources before it have.
    pub fn layer(
        &mut self,
        name: impl Into<PathBuf>,
        input: impl Read + Send + 'static,
    ) -> &mut Self {
        self.reader(name.into(), Box::new(input), ArchiveKind::Layer)
    }

    /// Adds what a command line names: `oci:…`, `docker-archive:…` and `docker://…` are container
    /// images, all else as [`Source::from_argument`] says.
    ///
    /// # Errors
    /// As [`Builder::container`].
    pub fn argument(&mut self, text: &Path, options: &OpenOptions) -> Result<&mut Self, Error> {
        match Reference::parse(text.as_os_str()).map_err(container)? {
            Some(reference) => self.container(&reference, options),
            None => Ok(self.source(Source::from_argument(text))),
        }
    }

    /// Adds the layers of a container image, the lowest first. The digests of what is stored and
    /// of what it decompresses to are compared while it is read.
    ///
    /// # Errors
    /// [`Error::Container`] if the image cannot be read or its documents are damaged.
    pub fn container(
        &mut self,
        reference: &Reference,
        options: &OpenOptions,
    ) -> Result<&mut Self, Error> {
        let image = ContainerImage::open(reference, options).map_err(container)?;
        for layer in image.layers {
            let path = format!("{reference}, layer {}", layer.number).into();
            let check = Box::new(DiffId(layer.tar_verifier()));
            let open = move || -> Result<Box<dyn Read + Send>, Error> {
                let input = layer.open().map_err(container)?;
                Ok(match layer.blob_verifier() {
                    Some(verifier) => Box::new(Blob(Verified::new(input, verifier))),
                    None => Box::new(Blob(input)),
                })
            };
            self.inputs.push(Input::Reader(Reader {
                open: Box::new(open),
                path,
                kind: ArchiveKind::Layer,
                check: Some(check),
            }));
        }
        Ok(self)
    }

    fn reader(
        &mut self,
        path: PathBuf,
        input: Box<dyn Read + Send>,
        kind: ArchiveKind,
    ) -> &mut Self {
        self.inputs.push(Input::Reader(Reader {
            open: Box::new(move || Ok(input)),
            path,
            kind,
            check: None,
        }));
        self
    }

    /// Makes the image at `output`.
    ///
    /// A file appears under its name when it is complete and durable; whatever went wrong, nothing
    /// is left behind and what had the name still has it. The same sources and options give the
    /// same bytes. [`Progress::is_cancelled`] stops it.
    ///
    /// # Errors
    /// Whatever is wrong with a source, the wishes or the output; see [`Error`].
    pub fn build(self, output: &Path, progress: &dyn Progress) -> Result<Report, Error> {
        self.build_to(Output::look_at(output)?, progress)
    }

    /// As [`Builder::build`], for an output that was looked at, or a stream.
    ///
    /// # Errors
    /// As [`Builder::build`]; a stream may then have a part of the image.
    pub fn build_to(self, output: Output, progress: &dyn Progress) -> Result<Report, Error> {
        run(self.inputs, output, &self.options, progress)
    }
}

fn container(error: crate::oci::Error) -> Error {
    Error::Container(Box::new(error))
}

/// The digest of a layer's archive.
struct DiffId(Verifier);

impl Check for DiffId {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.0.finish().map_err(container)
    }
}

/// A layer as it is stored: what is wrong with it is not an error of its compression.
struct Blob<R>(R);

impl<R: Read> Read for Blob<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| {
            let kind = error.kind();
            match error.downcast::<crate::oci::Error>() {
                Ok(ours) => io::Error::new(kind, container(ours)),
                Err(error) => error,
            }
        })
    }
}
