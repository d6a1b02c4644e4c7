//! Lists of options as users write them.

use rustix::mount::MountFlags;
use uext4::tuning::AccessTimes;
use uext4_fuse::{SyncPolicy, Transport};

use crate::failure::{Exit, Failure};
use crate::mount_options::{MountOptions, Xattrs};

fn parse(list: &str) -> Result<MountOptions, Failure> {
    super::parse(&[list.to_owned()])
}

#[test]
fn later_options_win() {
    let options =
        parse("defaults,ro,noatime,nodev,rw,dev,allow_other,x-systemd.automount").unwrap();
    assert!(!options.read_only && options.allow_other);
    assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NOSUID);
    let options = parse("ro,noload,memory=64M,threads=3").unwrap();
    assert!(options.read_only && !options.engine.replay_journal);
    let not_trusted = MountFlags::NOSUID | MountFlags::NODEV;
    assert_eq!(options.flags, MountFlags::RDONLY | not_trusted);
    assert_eq!(
        (options.engine.memory, options.threads),
        (Some(64 << 20), Some(3))
    );
    let options = parse("suid,dev").unwrap();
    assert!(!options.flags.intersects(not_trusted));
}

#[test]
fn every_option_of_the_kernels_ext4_has_its_answer() {
    let taken = "bsddf nogrpid sysvgroups resgid=0 resuid=0 errors=remount-ro errors=continue \
         errors=panic auto_da_alloc oldalloc orlov \
         user_xattr acl noload norecovery bh nobh commit=5 journal_checksum data=ordered \
         data_err=ignore quota noquota usrquota grpquota prjquota barrier nobarrier barrier=1 \
         i_version dax=inode dax=never stripe=0 delalloc lazytime nolazytime nowarn_on_error \
         mblk_io_submit nomblk_io_submit block_validity noblock_validity noauto_da_alloc \
         dioread_nolock nodioread_nolock dioread_lock discard nodiscard noinit_itable \
         max_dir_size_kb=0 nombcache no_mbcache no_prefetch_block_bitmaps check=none nocheck \
         reservation noreservation grpid nogrpid bsdgroups nobsdgroups \
         sysvgroups";
    for option in taken.split_whitespace() {
        assert!(parse(option).unwrap().notes.is_empty(), "{option}");
    }
    let noted = "minixdf nouid32 debug nouser_xattr min_batch_time=0 max_batch_time=15000 \
         nojournal_checksum journal_async_commit data=writeback nodelalloc warn_on_error \
         inode_readahead_blks=32 journal_ioprio=3 init_itable init_itable=10 inlinecrypt \
         mb_optimize_scan=1";
    for option in noted.split_whitespace() {
        let notes = parse(option).unwrap().notes.concat();
        assert!(
            notes.starts_with(&format!("-o {option} has no effect: ")),
            "{notes}"
        );
    }
    let refused = "noacl journal_dev=8 journal_path=/x journal=update abort data=journal \
         data_err=abort usrjquota=aquota.user grpjquota=aquota.group jqfmt=vfsv1 dax dax=always \
         debug_want_extra_isize=32 test_dummy_encryption test_dummy_encryption=v2 fc_debug_force \
         fc_debug_max_replay=1";
    for option in refused.split_whitespace() {
        let Err(Failure::Message { what, .. }) = parse(option) else {
            panic!("{option} was taken");
        };
        assert!(!what.contains("no such option"), "{what}");
    }
}

#[test]
fn lines_of_fstab_are_taken() {
    for (list, notes) in [
        (
            "defaults,noatime,errors=remount-ro,nofail,x-systemd.device-timeout=10s",
            0,
        ),
        (
            "rw,relatime,data=ordered,user=alice,comment=systemd.automount,_netdev",
            0,
        ),
        (
            "auto,nouser,async,loop,uhelper=udisks2,x-gvfs-show,X-custom=1",
            0,
        ),
        ("rw,loop=/dev/loop7,nogroup,noowner,nousers,helper=fuse", 0),
        (
            "noatime,data=writeback,barrier=0,nobh,commit=60,nodelalloc",
            2,
        ),
        (
            "init_itable=0,max_batch_time=30000,min_batch_time=100,mb_optimize_scan=0",
            4,
        ),
        ("shared,mand,X-mount.owner=alice,X-mount.mode=0700", 4),
    ] {
        assert_eq!(parse(list).unwrap().notes.len(), notes, "{list}");
    }
    let mode = |list| parse(list).unwrap().make_directory;
    assert_eq!(mode("X-mount.mkdir,noatime"), Some(0o755));
    assert_eq!(mode("x-mount.mkdir=0700"), Some(0o700));
    assert_eq!(mode("noatime"), None);
    for option in [
        "X-mount.mkdir=rwx",
        "X-mount.subdir=/srv",
        "X-mount.idmap=b:0:1:2",
        "context=system_u:object_r:tmp_t:s0",
        "offset=1048576",
        "umask=022",
    ] {
        assert!(parse(option).is_err(), "{option}");
    }
}

#[test]
fn transports_by_name() {
    assert_eq!(parse("rw").unwrap().transport, Transport::Auto);
    let options = parse("transport=dev,transport=io_uring").unwrap();
    assert_eq!(options.transport, Transport::Uring);
}

#[test]
fn how_much_is_durable_at_once() {
    for (list, sync_policy) in [
        ("rw", SyncPolicy::OnDemand),
        ("dirsync", SyncPolicy::Names),
        ("dirsync,sync", SyncPolicy::All),
        ("dirsync,sync,async,nodirsync", SyncPolicy::OnDemand),
    ] {
        assert_eq!(parse(list).unwrap().sync_policy(), sync_policy, "{list}");
    }
}

#[test]
fn the_engines_options_are_handed_on() {
    let options = parse("discard,stripe=16,dirty_ratio=30,commit=30,nobarrier").unwrap();
    assert_eq!(options.engine.discard, Some(true));
    assert_eq!(options.engine.stripe, Some(16));
    assert!(!options.engine.limits.barrier && options.engine.limits.commit_secs == 30);
    assert!(options.engine.limits.auto_da_alloc);
    let options = parse("auto_da_alloc,noauto_da_alloc").unwrap();
    assert!(!options.engine.limits.auto_da_alloc);
    let options = parse("ro,sb=131072,nosandbox,nonempty,metrics=/x").unwrap();
    assert!(options.nonempty && !options.sandbox);
    assert_eq!(options.superblock_kib, Some(131_072));
    let discard = |list| parse(list).unwrap().engine.discard;
    assert_eq!(discard("discard,nodiscard"), Some(false));
    assert_eq!(discard("nodiscard,discard"), Some(true));
}

#[test]
fn unknown_options_are_refused_by_name() {
    for option in [
        "nonsense",
        "memory=x",
        "threads=0",
        "transport=splice",
        "data=journal",
        "errors=retry",
        "journal_dev=8",
        "stripe=x",
        "commit=-1",
        "sb=0",
        "uid=4294967295",
        "gid=root",
        "idmap=0:1",
        "idmap=0:1:0",
        "idmap=x:0:1:1",
        "metrics=",
        "noxattr=1",
        "noatime=1",
    ] {
        let Err(Failure::Message { exit, what, .. }) = parse(option) else {
            panic!("{option} was taken");
        };
        assert_eq!(exit, Exit::Usage);
        assert!(what.starts_with(&format!("-o {option}: ")), "{what}");
    }
    for list in [
        "fakeroot,allow_other",
        "sb=131072",
        "idmap=0:1:2,idmap=u:1:5:1",
        "noopen,strictatime",
    ] {
        assert!(parse(list).is_err(), "{list}");
    }
}

#[test]
fn one_of_three_times_of_access() {
    let times = |list| parse(list).unwrap().access_times();
    assert_eq!(times(""), AccessTimes::Relative);
    assert_eq!(times("noatime,relatime"), AccessTimes::Relative);
    assert_eq!(times("strictatime"), AccessTimes::Strict);
    assert_eq!(times("strictatime,noatime"), AccessTimes::None);
    assert_eq!(times("noatime,atime,nodiratime"), AccessTimes::Relative);
}

#[test]
fn requests_that_a_mount_does_without() {
    for (list, xattrs) in [
        ("rw", Xattrs::Served),
        ("noxattr", Xattrs::Omitted),
        ("noxattr=auto", Xattrs::Auto),
        ("noxattr,noxattr=force", Xattrs::Hidden),
        ("noxattr=force,noxattr=no", Xattrs::Served),
    ] {
        assert_eq!(parse(list).unwrap().xattrs, xattrs, "{list}");
    }
    assert!(parse("rw").unwrap().opens && !parse("noopen").unwrap().opens);
    assert!(parse("noopen,open").unwrap().opens);
}

#[test]
fn owners_in_every_form() {
    let options = parse("uid=5,gid=6,fakeroot,idmap=u:0:1000:1,idmap=g:0:100:5").unwrap();
    assert_eq!(
        (options.owners.user, options.owners.group),
        (Some(5), Some(6))
    );
    assert!(options.owners.fakeroot);
    assert_eq!(options.owners.stored_user(1000), Ok(0));
    assert_eq!(options.owners.stored_group(104), Ok(4));
    let both = parse("idmap=0:1000:2").unwrap().owners;
    assert_eq!(
        (both.stored_user(1001), both.stored_group(1001)),
        (Ok(1), Ok(1))
    );
}

#[test]
fn options_that_contradict_each_other_are_a_wrong_command_line() {
    for list in ["min_ratio=60,max_ratio=50", "max_ratio=50,min_ratio=60"] {
        let Failure::Message { exit, what, .. } = parse(list).unwrap_err() else {
            panic!("{list}: no failure");
        };
        assert_eq!(exit, Exit::Usage);
        assert_eq!(
            what,
            "-o min_ratio=60: must be 0 to 50 percent, as max_ratio"
        );
    }
    parse("max_ratio=60,min_ratio=60").unwrap();
}
