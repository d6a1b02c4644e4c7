#!/bin/sh
# What overlayfs shows of one file system that holds lower and upper: while its caches are warm,
# after the kernel has dropped them, and after both were mounted anew. Names that were copied up,
# renamed, linked, removed, changed in their attributes alone. Usage: transcript.sh MOUNT UMOUNT
# PLACE MERGED OPTIONS, where MOUNT and UMOUNT are commands.
mount_it=$1 umount_it=$2 m=$3 merged=$4
layers="lowerdir=$m/lo,upperdir=$m/up,workdir=$m/wk${5:+,$5}"

show() {
    echo "-- $1"
    (
        cd "$merged" || exit
        find . -mindepth 1 -printf '%P %y %s %m %U %n %l\n' | LC_ALL=C sort
        find . -type f | LC_ALL=C sort | while read -r file; do
            printf '%s ' "$file" && md5sum < "$file"
            getfattr --only-values -n user.x "$file" 2> /dev/null && echo
        done
    ) 2>&1
}

drop() {
    sync
    echo 2 > /proc/sys/vm/drop_caches
}

# Another test, or a service of the machine, may look at all mounts just now.
unmount() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$@" 2> /dev/null && return
        sleep 0.3
    done
    "$@"
}

$mount_it
mkdir -p "$m/lo/d1/sub" "$m/lo/d2" "$m/lo/d3" "$m/up" "$m/wk"
for number in 1 2 3 4 5 6 7 8; do echo "low $number" > "$m/lo/a$number"; done
for dir in d1 d2 d3 d1/sub; do echo "in $dir" > "$m/lo/$dir/f"; done
ln "$m/lo/a7" "$m/lo/h7"
ln -s a1 "$m/lo/link"
head -c 300000 /dev/zero | tr '\0' z > "$m/lo/big"
setfattr -n user.x -v 1 "$m/lo/a5"

mount -t overlay overlay -o "$layers" "$merged" 2>&1
echo more >> "$merged/a1"
chmod 600 "$merged/a2"
chmod 640 "$merged/big"
chown 5:5 "$merged/a3"
rm "$merged/a4"
mv "$merged/a5" "$merged/b5"
mv "$merged/d1" "$merged/e1" 2>&1
rm -r "$merged/d2"
mkdir "$merged/d2"
echo new > "$merged/d2/new"
echo through >> "$merged/h7"
touch "$merged/d3/t"
ln "$merged/a6" "$merged/c6"
echo both >> "$merged/c6"
setfattr -n user.x -v 2 "$merged/a8"
exec 7< "$merged/a8"
show warm
drop
show dropped
drop
cat "$merged/a1" "$merged/a7" "$merged/a6" 2>&1
echo again >> "$merged/a1"
drop
echo again >> "$merged/a2"
mv "$merged/d3" "$merged/d5" 2>&1
drop
show changed
exec 7<&-
unmount umount "$merged" && unmount $umount_it && $mount_it
mount -t overlay overlay -o "$layers" "$merged" 2>&1
show anew
drop
echo end >> "$merged/a7"
drop
cat "$merged/h7" "$merged/a7" 2>&1
rm "$merged/a6"
drop
show ended
unmount umount "$merged" && unmount $umount_it
