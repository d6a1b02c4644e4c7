for wanted in sys.argv[2:]:
    os.umask(0o022)
    STATE["part"] = wanted
    if wanted == "for_reading":
        for_reading()
    else:
        PARTS[wanted]()
