//! Images for old kernels and boot loaders: only the features of the profile, and still sound.

use std::process::Command;

use uext4_image::{BuildOptions, Size};
use uext4_mkfs::PROFILES;
use uext4_testkit::{Mount, assert_clean, can_mount, has_tool};

use crate::building::Place;
use crate::walk::{assert_same, walk_image, walk_source};

#[test]
fn images_of_every_profile_have_only_its_features() {
    let place = Place::populated();
    let want = walk_source(&place.tree());
    for profile in PROFILES {
        let mut options = BuildOptions {
            size: Size::Free(1 << 20),
            ..BuildOptions::default()
        };
        profile.apply(&mut options.mkfs);
        place.build(&options);
        assert_clean(&place.image());
        if has_tool("dumpe2fs") {
            let mut dumpe2fs = Command::new("dumpe2fs");
            let output = dumpe2fs.arg("-h").arg(place.image()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("Filesystem features:"));
            let features: Vec<&str> = line.unwrap().split_whitespace().collect();
            assert!(
                features.contains(&"extent"),
                "{}: {features:?}",
                profile.name
            );
            for cleared in profile
                .features
                .split(',')
                .filter_map(|f| f.strip_prefix('^'))
            {
                assert!(
                    !features.contains(&cleared),
                    "{}: {features:?}",
                    profile.name
                );
            }
        }
        if can_mount() {
            let mount = Mount::new(&place.image(), "rw,noatime");
            assert_same(&walk_image(mount.path()), &want, profile.name);
        }
    }
}
